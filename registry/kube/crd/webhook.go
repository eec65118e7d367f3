package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/kube"
)

const (
	// WebhookName is the name of the ValidatingWebhookConfiguration that we keep correct.
	WebhookName = "ashore"
	// webhookGap is how often it is checked, and the shortest time between two writes.
	webhookGap = 5 * time.Second
)

// WebhookConfig configures a Webhook. All fields are required.
type WebhookConfig struct {
	// Cluster is where the configuration is.
	Cluster *kube.Cluster
	// Roots returns the root certificates of the mesh, in PEM.
	Roots func() []byte
}

// Webhook keeps the ValidatingWebhookConfiguration of a cluster correct: the root certificates, and
// the failure policy. It creates none.
//
// The policy becomes Fail once the API server has refused an invalid object in our name. A broken
// Service, certificate or network thus cannot stop users from writing. It never becomes Ignore again.
type Webhook struct {
	cfg      WebhookConfig
	failures kube.Failures

	patched time.Time // when the configuration was written; belongs to Run
}

// NewWebhook returns a webhook. Call its Run.
func NewWebhook(cfg WebhookConfig) *Webhook {
	return &Webhook{cfg: cfg}
}

// Problems returns why the configuration is not as it should be. A replica that does not lead has
// none.
func (w *Webhook) Problems() []feed.Problem {
	return w.failures.Problems(w.cfg.Cluster.Name, "; invalid objects may be written, and do not take effect")
}

// Run corrects the configuration until ctx ends. Only one replica may run it at a time; see
// kube.Cluster.Lead.
func (w *Webhook) Run(ctx context.Context) {
	defer w.failures.Clear()
	changes := make(chan *admission.ValidatingWebhookConfiguration)
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { w.watch(ctx, changes) })
	tick := time.NewTicker(webhookGap)
	defer tick.Stop()
	var latest *admission.ValidatingWebhookConfiguration
	for {
		select {
		case <-ctx.Done():
			return
		case latest = <-changes:
		case <-tick.C:
		}
		if latest != nil && time.Since(w.patched) >= webhookGap {
			w.failures.Note("webhook", w.reconcile(ctx, latest))
		} else if latest == nil {
			w.failures.Note("webhook", nil)
		}
	}
}

// watch sends each version of the configuration, and nil while there is none.
func (w *Webhook) watch(ctx context.Context, out chan<- *admission.ValidatingWebhookConfiguration) {
	send := func(c *admission.ValidatingWebhookConfiguration) {
		select {
		case <-ctx.Done():
		case out <- c:
		}
	}
	kube.Watch(ctx, w.cfg.Cluster, kube.Resource[*admission.ValidatingWebhookConfigurationList]{
		Name:   "validatingwebhookconfigurations",
		Client: w.cfg.Cluster.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(),
		Fields: "metadata.name=" + WebhookName,
	}, kube.Handler[*admission.ValidatingWebhookConfiguration, *admission.ValidatingWebhookConfiguration]{
		Convert: func(c *admission.ValidatingWebhookConfiguration) *admission.ValidatingWebhookConfiguration { return c },
		Replace: func(all []*admission.ValidatingWebhookConfiguration, _ bool) {
			if len(all) == 0 {
				send(nil)
			}
			for _, c := range all {
				send(c)
			}
		},
		Set:    send,
		Delete: func(*admission.ValidatingWebhookConfiguration) { send(nil) },
		Report: func(err error) { w.failures.Note("watch", err) },
	})
}

// reconcile writes what is not as it should be, and returns why it cannot be.
func (w *Webhook) reconcile(ctx context.Context, latest *admission.ValidatingWebhookConfiguration) error {
	roots := w.cfg.Roots()
	trusted, failing := true, true
	for _, h := range latest.Webhooks {
		trusted = trusted && bytes.Equal(h.ClientConfig.CABundle, roots)
		failing = failing && (h.FailurePolicy == nil || *h.FailurePolicy == admission.Fail)
	}
	if trusted && failing {
		return nil
	}
	if trusted {
		if err := w.probe(ctx, latest); err != nil {
			return err
		}
	}
	var list []any
	for _, h := range latest.Webhooks {
		entry := map[string]any{"name": h.Name, "clientConfig": map[string]any{"caBundle": roots}}
		if trusted {
			entry["failurePolicy"] = admission.Fail
		}
		list = append(list, entry)
	}
	return w.patch(ctx, latest.ResourceVersion, list)
}

// patch replaces fields of webhooks, if nobody changed the configuration since.
func (w *Webhook) patch(ctx context.Context, version string, list []any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "webhooks": list})
	if err != nil {
		return fmt.Errorf("ValidatingWebhookConfiguration %s: %w", WebhookName, err)
	}
	_, err = w.cfg.Cluster.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, WebhookName,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the watch delivers the next version
		return nil
	case err != nil:
		return w.cfg.Cluster.Explain(err, "patch", "validatingwebhookconfigurations")
	}
	w.patched = time.Now()
	w.cfg.Cluster.Log.Info("corrected the ValidatingWebhookConfiguration", "name", WebhookName)
	return nil
}

// probe tries to create an invalid Gateway, without effect, and returns why it was not us who refused
// it. CRDs accept the object: only its host is wrong.
// Source: Istio proves its webhook in the same way, pkg/webhooks/validation/controller.
func (w *Webhook) probe(ctx context.Context, latest *admission.ValidatingWebhookConfiguration) error {
	info, _ := config.Info(config.Gateway)
	namespace := w.cfg.Cluster.Options.Namespace
	invalid := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": info.APIVersion(), "kind": string(info.Kind),
		"metadata": map[string]any{"name": "ashore-webhook-probe", "namespace": namespace},
		"spec": map[string]any{"servers": []any{map[string]any{
			"hosts": []any{"invalid*host"},
			"port":  map[string]any{"number": int64(80), "name": "http", "protocol": "HTTP"},
		}}},
	}}
	at := schema.GroupVersionResource{Group: info.Group, Version: info.Versions[0], Resource: info.Plural}
	_, err := w.cfg.Cluster.Dynamic.Resource(at).Namespace(namespace).Create(ctx, invalid,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	stays := fmt.Sprintf("the failurePolicy of ValidatingWebhookConfiguration %s is not set to Fail", WebhookName)
	if err == nil {
		return errors.New(stays + ": the API server accepts an invalid Gateway, so it does not reach ashored: check the " +
			"Service and the port of the webhook")
	}
	for _, h := range latest.Webhooks {
		if strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied the request", h.Name)) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", stays, w.cfg.Cluster.Explain(err, "create (dry run)", "gateways in "+namespace))
}
