package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// answer is a VirtualService that answers calls of shop/web with a status.
func answer(status int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  http: [{directResponse: {status: %d}}]
`, status)
}

// example is a file of examples/kubernetes.
func (c *cluster) example(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "kubernetes", name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// conditions waits until the conditions of the VirtualService, as text, contain words.
func (c *cluster) conditions(words ...string) {
	c.t.Helper()
	harness.Eventually(c.t, fmt.Sprintf("a status with %q", words), func() error {
		return c.each(answer(0), func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
			o, err := objects.Get(context.Background(), o.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			text := fmt.Sprint(o.Object["status"])
			for _, w := range words {
				if !strings.Contains(text, w) {
					return errors.New(text)
				}
			}
			return nil
		})
	})
}

// webhookService makes the API server reach ashored at the name of the examples.
const webhookService = `
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec: {ports: [{name: webhook, port: 15017}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: istiod, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
ports: [{name: webhook, port: 15017}]
endpoints: [{addresses: [ADDRESS], conditions: {ready: true}}]
`

// Istio's objects in a cluster configure a mesh of VMs. ashored has the rights of the examples: at first
// those to read alone.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(c.example("namespace.yaml"))
	c.apply(c.example("roles.yaml"))
	readers, _, _ := strings.Cut(c.example("bindings.yaml"), "---")
	c.apply(readers)
	c.apply(workload("shop", "web", 1))
	c.apply(answer(http.StatusTeapot))
	m := harness.New(t, map[string]string{"a.yaml": group("a")}, harness.At(hub),
		harness.Secure("ca: {names: [istiod.istio-system.svc]}\nwebhook: {address: \""+harness.HubSubnet+"1:15017\"}"),
		harness.Sources(source("kubernetes", c.Kubeconfig("istio-system", "ashored"))))
	a := join(t, m, hub, "a")
	client := a.Namespace.Client(t, c.clusterIP("shop", "web")+":80")
	client.Want(t, "a VirtualService", web(), harness.Status(http.StatusTeapot))
	m.WantProblem("does not allow ashored to", "leases in istio-system", "examples/kubernetes/roles.yaml")

	t.Log("status")
	c.apply(c.example("bindings.yaml"))
	c.conditions("reason:Active", "status:True", "observedGeneration:1")
	c.apply(answer(9))
	c.conditions("reason:Invalid", "status:False", "observedGeneration:2", "generation 1 stays active")
	m.WantProblem("from 200 to 599")
	client.Want(t, "the last valid version", web(), harness.Status(http.StatusTeapot))
	err := c.each(answer(0), func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		o, err := objects.Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "Other", "status": "True"})
		if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		_, err = objects.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.apply(answer(http.StatusAccepted))
	c.conditions("type:Other", "reason:Active", "observedGeneration:3")
	client.Want(t, "a changed VirtualService", web(), harness.Status(http.StatusAccepted))

	t.Log("webhook")
	c.apply(strings.Replace(webhookService, "ADDRESS", harness.HubSubnet+"1", 1))
	c.apply(c.example("webhook.yaml"))
	harness.Eventually(t, "invalid objects are refused", func() error {
		err := c.tryApply(answer(9))
		if err == nil {
			err = errors.New("the API server accepts one")
		}
		if strings.Contains(err.Error(), "from 200 to 599") {
			return nil
		}
		return err
	})
	c.apply(answer(http.StatusCreated))
	client.Want(t, "a VirtualService that was validated", web(), harness.Status(http.StatusCreated))

	t.Log("deletion")
	c.remove(answer(0))
	client.Want(t, "no VirtualService", web(), answeredBy("web-"))
}
