package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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

// web is a request to the Service shop/web.
func web() harness.Request { return harness.Request{Host: "web.shop.svc.cluster.local"} }

// source is a source of the settings that reads a cluster.
func source(name, kubeconfig string) string {
	return fmt.Sprintf("{kind: kubernetes, name: %s, kubeconfig: %s}", name, kubeconfig)
}

// group is a WorkloadGroup of VMs in namespace shop.
func group(name string) string {
	return strings.ReplaceAll(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: NAME, namespace: shop}
spec:
  metadata: {labels: {app: NAME}}
  template: {serviceAccount: NAME}
`, "NAME", name)
}

// vm is a machine on the bridge whose traffic is redirected to its proxy.
type vm struct {
	*harness.Namespace
	*harness.Proxy
}

// join has a new machine of a group join.
func join(t *testing.T, m *harness.Mesh, hub *harness.Namespace, group string) vm {
	t.Helper()
	ns := hub.Attach()
	ns.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	return vm{ns, m.Join(harness.Workload{Name: fmt.Sprint(group, "-1"), Group: "shop/" + group, Redirected: ns})}
}

// clusterIP returns the address of a Service.
func (c *cluster) clusterIP(namespace, name string) string {
	c.t.Helper()
	s, err := c.client.CoreV1().Services(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// scale changes the number of Pods of a Deployment.
func (c *cluster) scale(namespace, name string, replicas int) {
	c.t.Helper()
	c.patch("deployments", namespace, name, fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas))
}

// patch changes an object of the group apps/v1.
func (c *cluster) patch(resource, namespace, name, patch string) {
	c.t.Helper()
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	_, err := c.dynamic.Resource(gvr).Namespace(namespace).Patch(context.Background(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// answerers waits until calls are answered by exactly n Pods whose names begin with prefix, in turn.
// It returns their names.
func answerers(t *testing.T, client *harness.Client, r harness.Request, prefix string, n int) (names []string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d Pods %s answer", n, prefix), func() error {
		seen := map[string]bool{}
		for range 20*n + 20 { // so many that none is left out by chance
			a, err := client.Do(r)
			if err != nil {
				return err
			}
			if err := answeredBy(prefix)(a); err != nil {
				return err
			}
			seen[a.Seen.Backend] = true
		}
		if names = slices.Sorted(maps.Keys(seen)); len(names) != n {
			return fmt.Errorf("%q answer", names)
		}
		return nil
	})
	return names
}

// answeredBy checks that a backend answered whose name begins with prefix.
func answeredBy(prefix string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if a.Status != http.StatusOK || !strings.HasPrefix(a.Seen.Backend, prefix) {
			return fmt.Errorf("got %d from %q (%.200s), want one of %s", a.Status, a.Seen.Backend, a.Body, prefix)
		}
		return nil
	}
}

// outage is how long the API server is away. Back-offs reach their maximum within a minute.
const outage = 2 * time.Minute

// expire makes changes while ashored is frozen, and restarts the API server, which then has no
// history: ashored cannot continue its watches.
func (c *cluster) expire(m *harness.Mesh, change func()) {
	c.t.Helper()
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(m.Ashored.PID(), s); err != nil {
			c.t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	change()
	c.StopAPI()
	c.StartAPI()
	signal(syscall.SIGCONT)
}

// The Services of a cluster are services of a mesh of VMs. What happens to Pods takes effect, and
// outages of the API server change nothing.
func TestServices(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(workload("shop", "web", 2))
	m := harness.New(t, map[string]string{"a.yaml": group("a") + group("b")}, harness.At(hub), harness.Secure(""),
		harness.Sources(source("kubernetes", c.Admin)))
	a := join(t, m, hub, "a")
	address := c.clusterIP("shop", "web") + ":80"
	client := a.Namespace.Client(t, address)
	answerers(t, client, web(), "web-", 2)
	load := harness.StartCalls(t, a.Namespace.Client(t, address), web(), 20*time.Millisecond)

	t.Log("scale")
	c.scale("shop", "web", 3)
	answerers(t, client, web(), "web-", 3)
	c.scale("shop", "web", 2)
	before := answerers(t, client, web(), "web-", 2)

	t.Log("rollout")
	var after []string
	c.patch("deployments", "shop", "web", `{"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}`)
	harness.Eventually(t, "the rollout", func() error {
		after = answerers(t, client, web(), "web-", 2)
		if slices.ContainsFunc(after, func(s string) bool { return slices.Contains(before, s) }) {
			return fmt.Errorf("%q answer, before %q", after, before)
		}
		return nil
	})

	t.Log("readiness")
	p := c.pod("shop/" + after[0]) // Pods from before the rollout may still run
	c.setReady(p, false)
	if got := answerers(t, client, web(), "web-", 1); "shop/"+got[0] == p.name {
		t.Errorf("%s answers, which is not ready", p.name)
	}
	c.setReady(p, true)
	answerers(t, client, web(), "web-", 2)

	t.Log("the API server is away")
	c.StopAPI()
	m.WantProblem("connection refused", "its items stay active")
	c.setReady(p, false) // which reaches the API server when it is back
	time.Sleep(outage / 2)
	m.Ashored.Kill()
	m.Start()
	b := join(t, m, hub, "b")
	answerers(t, b.Namespace.Client(t, address), web(), "web-", 2)
	time.Sleep(outage / 2)
	answerers(t, client, web(), "web-", 2)
	c.StartAPI()
	c.RestartControllers()
	if got := answerers(t, client, web(), "web-", 1); "shop/"+got[0] == p.name {
		t.Errorf("%s answers, which is not ready", p.name)
	}
	c.setReady(p, true)
	c.scale("shop", "web", 3)
	answerers(t, client, web(), "web-", 3)

	t.Log("an expired watch")
	c.expire(m, func() {
		c.scale("shop", "web", 2)
		harness.Eventually(t, "two Pods", func() error {
			if n := len(c.all("shop/web-")); n != 2 {
				return fmt.Errorf("%d run", n)
			}
			return nil
		})
	})
	answerers(t, client, web(), "web-", 2)

	t.Log("lost data")
	c.pause(true)
	c.Forget()
	m.WantProblem("Service shop/web", "still active")
	answerers(t, client, web(), "web-", 2)
	load.Clean(t, 100)
	c.apply(workload("shop", "web", 1))
	c.pause(false)
	address = c.clusterIP("shop", "web") + ":80"
	client = a.Namespace.Client(t, address)
	answerers(t, client, web(), "web-", 1)

	t.Log("deletion")
	c.remove("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}")
	client.Want(t, "a Service without Pods", web(), harness.Status(http.StatusServiceUnavailable))
	c.apply(workload("bank", "web", 1))
	bank := harness.Request{Host: "web.bank.svc.cluster.local"}
	client = a.Namespace.Client(t, c.clusterIP("bank", "web")+":80")
	answerers(t, client, bank, "web-", 1)
	c.remove("{apiVersion: v1, kind: Namespace, metadata: {name: bank}}")
	harness.Eventually(t, "the services of a deleted namespace are gone", func() error {
		out, _, err := harness.Command("ashorectl", "get", "services", "--socket", m.Socket())
		if err == nil && strings.Contains(out, "web.bank.svc.cluster.local") {
			err = fmt.Errorf("there are:\n%s", out)
		}
		return err
	})
}
