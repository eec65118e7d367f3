package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// example returns a manifest of examples/kubernetes.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../examples/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), ":VERSION", ":1.0")
}

// healthy waits for a status 200 of a Pod's port.
func healthy(t *testing.T, hub *harness.Namespace, p *pod, address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: hub.Dial, DisableKeepAlives: true}}
	harness.Eventually(t, p.name+" is ready", func() error {
		r, err := client.Get("http://" + p.ns.IP + address)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
}

// examples/kubernetes works with the images of "make package": ashored runs with the rights of its
// account and no others, the API server has it validate objects, and Pods with the sidecar call one
// another with mutual TLS.
func TestExample(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	images := map[string]string{"ashored": unpackImage(t, "ashored"), "ashore-agent": unpackImage(t, "ashore-agent")}
	for _, name := range []string{"namespace.yaml", "roles.yaml", "bindings.yaml", "settings.yaml", "deployment.yaml"} {
		c.apply(example(t, name))
	}
	p := c.pod("istio-system/ashored-")
	ashored := c.containersOf(p, images, nil)
	ashored.run("init")
	ashored.start("ashored")
	healthy(t, hub, p, ":15014/ready")

	t.Log("validation")
	c.apply(example(t, "webhook.yaml"))
	harness.Eventually(t, "the webhook is proven", func() error {
		hooks, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(context.Background(), "ashore",
			metav1.GetOptions{})
		if err == nil && *hooks.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
			err = fmt.Errorf("its failurePolicy is %s", *hooks.Webhooks[0].FailurePolicy)
		}
		return err
	})
	bad := `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: default},
spec: {hosts: [web], http: [{timeout: -1s, route: [{destination: {host: web}}]}]}}`
	if err := c.tryApply(bad); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("an invalid object: %v", err)
	}

	t.Log("workloads")
	names := map[string]string{"istiod.istio-system.svc": p.ns.IP}
	for _, name := range []string{"web", "client"} {
		c.apply(strings.ReplaceAll(example(t, "workload.yaml"), "web", name))
	}
	c.root("shop")
	pods := map[string]*pod{}
	for _, name := range []string{"web", "client"} {
		pods[name] = c.pod("shop/" + name + "-")
		x := c.containersOf(pods[name], images, names)
		x.run("redirect")
		x.start("agent")
		healthy(t, hub, pods[name], ":15020/healthz/ready")
		out, err := x.exec("agent", "ashore-agent", "status", "--state", "/var/lib/ashore-agent/state")
		if strings.Contains(out, " bad ") || !strings.Contains(out, "spiffe://cluster.local/ns/shop/sa/"+name) {
			t.Errorf("status of %s: %v\n%s", name, err, out)
		}
	}
	address := c.clusterIP("shop", "web")
	pods["client"].ns.Client(t, address+":80").Fresh().Want(t, "a Pod calls a Pod", web(), provenBy("client", "web-"))
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return pods["client"].ns.Dial(ctx, network, hub.IP+":53") // which the rules redirect
	}}
	harness.Eventually(t, "the agent resolves a Service", func() error {
		found, err := resolver.LookupHost(t.Context(), web().Host)
		if err == nil && (len(found) == 0 || found[0] != address) {
			err = fmt.Errorf("it has %q, want %s", found, address)
		}
		return err
	})
	out, err := ashored.exec("ashored", "ashorectl", "problems")
	if err != nil || strings.TrimSpace(out) != "no problems" {
		t.Errorf("problems: %v\n%s", err, out)
	}
}
