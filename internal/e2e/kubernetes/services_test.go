package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// workload is a Deployment NAME and a Service of it in a namespace.
func workload(namespace, name string, replicas int) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "REPLICAS", fmt.Sprint(replicas)).Replace(`
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: NAMESPACE}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      serviceAccountName: NAME
      terminationGracePeriodSeconds: 1
      containers:
      - {name: NAME, image: none, ports: [{name: http, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  selector: {app: NAME}
  ports: [{name: http, port: 80, targetPort: http}]
`)
}

func TestHarness(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(workload("shop", "web", 2))
	p := c.pod("shop/web-")
	hub.Client(t, p.ns.IP+":8080").Want(t, "a Pod", harness.Request{}, harness.From(strings.TrimPrefix(p.name, "shop/")))
	c.setReady(p, false)
	harness.Eventually(t, "x", func() error {
		var out struct{ Status struct{ ReadyReplicas int } }
		if err := c.Call("GET", "/apis/apps/v1/namespaces/shop/deployments/web", nil, &out); err != nil {
			return err
		}
		if out.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d", out.Status.ReadyReplicas)
		}
		return nil
	})
	c.remove("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	harness.Eventually(t, "no Pods", func() error {
		if n := len(c.all("shop/")); n > 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
}
