package crd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/config"
)

// ignoring is a configuration as users install it.
func ignoring() *admission.ValidatingWebhookConfiguration {
	policy, path := admission.Ignore, "/validate"
	return &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName},
		Webhooks: []admission.ValidatingWebhook{{Name: "validation.ashore.io", FailurePolicy: &policy,
			ClientConfig: admission.WebhookClientConfig{Service: &admission.ServiceReference{Name: "ashored", Path: &path}}}},
	}
}

// webhookState is what reconcile left behind.
func (c *fakeCluster) webhookState() string {
	c.t.Helper()
	got, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(c.t.Context(), WebhookName,
		metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	h := got.Webhooks[0]
	if len(got.Webhooks) != 1 || h.ClientConfig.Service == nil || *h.ClientConfig.Service.Path != "/validate" {
		c.t.Errorf("other fields changed: %+v", got.Webhooks)
	}
	return string(*h.FailurePolicy) + " " + string(h.ClientConfig.CABundle)
}

func TestWebhookReconcile(t *testing.T) {
	t.Parallel()
	denied := errors.New(`admission webhook "validation.ashore.io" denied the request: spec.servers[0].hosts[0]: ...`)
	other := errors.New(`admission webhook "other" denied the request`)
	for name, tc := range map[string]struct {
		roots  string // in the cluster
		policy admission.FailurePolicyType
		probe  error
		want   string
		error  string
	}{
		"no roots":           {"", admission.Ignore, denied, "Ignore pem", ""},
		"old roots":          {"old", admission.Fail, nil, "Fail pem", ""},
		"not reached":        {"pem", admission.Ignore, nil, "Ignore pem", "so it does not reach ashored"},
		"refused by another": {"pem", admission.Ignore, other, "Ignore pem", "other"},
		"may not try": {"pem", admission.Ignore, forbidden("gateways"), "Ignore pem",
			"to create (dry run) gateways in istio-system"},
		"proven":               {"pem", admission.Ignore, denied, "Fail pem", ""},
		"as it should be":      {"pem", admission.Fail, errors.New("not tried"), "Fail pem", ""},
		"roots before the try": {"old", admission.Ignore, denied, "Ignore pem", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, config.Gateway)
			have := ignoring()
			have.Webhooks[0].ClientConfig.CABundle = []byte(tc.roots)
			have.Webhooks[0].FailurePolicy = &tc.policy
			if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), have,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.fail("create gateways", tc.probe)
			w := NewWebhook(WebhookConfig{Cluster: c.kube, Roots: func() []byte { return []byte("pem") }})
			err := w.reconcile(t.Context(), have)
			if tc.error == "" && err != nil || tc.error != "" && (err == nil || !strings.Contains(err.Error(), tc.error)) {
				t.Errorf("error %v, want %q", err, tc.error)
			}
			if got := c.webhookState(); got != tc.want {
				t.Errorf("policy and roots %q, want %q", got, tc.want)
			}
		})
	}
}

// Run corrects a configuration that is installed later, and reports what it may not do.
func TestWebhookRun(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t)
	c.fail("list validatingwebhookconfigurations", forbidden("validatingwebhookconfigurations"))
	w := NewWebhook(WebhookConfig{Cluster: c.kube, Roots: func() []byte { return []byte("pem") }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	eventually(t, func() bool {
		p := w.Problems()
		return len(p) == 1 && strings.Contains(p[0].Text, "list and watch validatingwebhookconfigurations: give its account")
	})
	c.fail("list validatingwebhookconfigurations", nil)
	eventually(t, func() bool { return len(w.Problems()) == 0 })
	if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, ignoring(),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return c.webhookState() == "Ignore pem" })
	cancel()
	<-ended
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}
