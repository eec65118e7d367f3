package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// manifests returns files of examples/kubernetes as one text.
func manifests(t *testing.T, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../../examples/kubernetes", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n---\n")
}

// webhookService has the API server find ashored, which runs outside of the cluster.
const webhookService = `
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec:
  ports: [{name: https-webhook, port: 15017}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: istiod, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
endpoints: [{addresses: [10.98.0.1]}]
ports: [{name: https-webhook, port: 15017}]
`

// valid and invalid are names of hosts for header. The schemas of Istio's CRDs accept both.
const valid, invalid = "other", "o*ther"

// header is a VirtualService of shop/web and another host that adds a header to answers.
func header(value, host string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web, %q]
  http:
  - route: [{destination: {host: web}}]
    headers: {response: {set: {x-version: %q}}}
`, host, value)
}

// wantHeader checks the header that header adds.
func wantHeader(value string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if got := a.Header.Get("x-version"); a.Status != http.StatusOK || got != value {
			return fmt.Errorf("got %d with x-version %q, want %q", a.Status, got, value)
		}
		return nil
	}
}

// virtualServices are the VirtualServices of namespace shop.
func (c *cluster) virtualServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
}

// wantStatus waits until the status of VirtualService shop/web has a condition with these fields.
func (c *cluster) wantStatus(kind, status string, words ...string) {
	c.t.Helper()
	harness.Eventually(c.t, fmt.Sprintf("condition %s is %s with %q", kind, status, words), func() error {
		o, err := c.dynamic.Resource(c.virtualServices()).Namespace("shop").Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			text := fmt.Sprint(fields)
			missing := fields["type"] != kind || fields["status"] != status
			for _, w := range words {
				missing = missing || !strings.Contains(text, w)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %v", list)
	})
}

// Istio's objects in a cluster are configuration of the mesh. ashored has the rights that the examples
// give it: the webhook refuses invalid objects, and the status says which are in use. With the right to
// read alone, ashored works and names what it may not do.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(manifests(t, "namespace", "roles", "bindings") + "---" + webhookService + "---" + workload("shop", "web", 1))
	m := harness.New(t, map[string]string{"vm.yaml": group("vm")}, harness.At(hub),
		harness.Secure("webhook: {address: '10.98.0.1:15017'}\nattestors: {kubernetes: [kubernetes]}"),
		harness.Sources(source("kubernetes", c.Kubeconfig("istio-system", "ashored"))))
	vm := join(t, m, hub, "vm")
	client := vm.Namespace.Client(t, c.clusterIP("shop", "web")+":80")
	c.root("shop")

	t.Log("a valid object")
	c.apply(header("1", valid))
	client.Want(t, "a valid object", web(), wantHeader("1"))
	c.wantStatus("Reconciled", "True", "Active", "observedGeneration:1")

	t.Log("another writer of the status")
	_, err := c.dynamic.Resource(c.virtualServices()).Namespace("shop").Patch(t.Context(), "web", types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Other", "status": "True", "reason": "Test"}}]`),
		metav1.PatchOptions{FieldManager: "other"}, "status")
	if err != nil {
		t.Fatal(err)
	}

	t.Log("an invalid object without a webhook")
	c.apply(header("2", invalid))
	c.wantStatus("Reconciled", "False", "Invalid", "observedGeneration:2", "spec.hosts[1]", "generation 1 stays active")
	c.wantStatus("Other", "True", "Test")
	m.WantProblem(invalid)
	client.Want(t, "the last valid version", web(), wantHeader("1"))
	c.apply(header("3", valid))
	client.Want(t, "a corrected object", web(), wantHeader("3"))
	c.wantStatus("Reconciled", "True", "observedGeneration:3")
	c.wantStatus("Other", "True", "Test")

	t.Log("the webhook")
	c.apply(manifests(t, "webhook"))
	harness.Eventually(t, "the webhook refuses an invalid object", func() error {
		err := c.tryApply(header("4", invalid))
		if err == nil || !strings.Contains(err.Error(), "denied the request") || !strings.Contains(err.Error(), "spec.hosts[1]") {
			err = fmt.Errorf("got %v, want a refusal that names the field", err)
			c.apply(header("3", valid))
			return err
		}
		return nil
	})
	webhooks := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	policy := func(want string) {
		harness.Eventually(t, "the failure policy is "+want, func() error {
			o, err := webhooks.Get(context.Background(), "ashore", metav1.GetOptions{})
			if err == nil && string(*o.Webhooks[0].FailurePolicy) != want {
				err = fmt.Errorf("it is %s", *o.Webhooks[0].FailurePolicy)
			}
			return err
		})
	}
	policy("Fail")
	c.apply(manifests(t, "webhook")) // somebody installs it again
	policy("Fail")
	c.apply(header("5", valid))
	client.Want(t, "a valid object", web(), wantHeader("5"))
	c.wantStatus("Other", "True", "Test")

	t.Log("the right to read alone")
	c.remove(manifests(t, "webhook", "bindings"))
	c.apply(strings.Split(manifests(t, "bindings"), "\n---\n")[0])
	c.apply(header("6", valid))
	client.Want(t, "a valid object without the right to write", web(), wantHeader("6"))
	m.WantProblem("does not allow ashored to", "leases", "examples/kubernetes/roles.yaml")
	c.remove(header("6", valid))
	client.Want(t, "a deleted object", web(), wantHeader(""))
}
