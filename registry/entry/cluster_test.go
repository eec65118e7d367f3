package entry_test

import (
	"context"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// fakeCluster is a cluster of Kubernetes.
type fakeCluster struct {
	task.Broadcaster
	pods      pmap.Map[registry.ObjectKey, *registry.Endpoint]
	selectors pmap.Map[registry.ObjectKey, *registry.Selector]
}

func (f *fakeCluster) Name() string { return "kubernetes" }

func (f *fakeCluster) Pods() pmap.Map[registry.ObjectKey, *registry.Endpoint] { return f.pods }

func (f *fakeCluster) Selectors() pmap.Map[registry.ObjectKey, *registry.Selector] {
	return f.selectors
}

func (f *fakeCluster) pod(namespace, address, app string, h registry.Health) {
	k := registry.ObjectKey{Namespace: namespace, Name: "pod-" + address}
	f.pods = f.pods.With(k, &registry.Endpoint{Address: address, Namespace: namespace, Workload: "pod",
		Labels: map[string]string{"app": app}, Ports: map[string]uint32{"http": 8080}, Health: h})
}

// Clusters' Pods are endpoints of ServiceEntries, and WorkloadEntries are those of Services.
func TestSelectionAcross(t *testing.T) {
	t.Parallel()
	selecting := serviceEntry(networking.ServiceEntry_STATIC, "api.shop")
	selecting.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "api"}}
	everything := serviceEntry(networking.ServiceEntry_STATIC, "all.shop")
	everything.WorkloadSelector = &networking.WorkloadSelector{}
	c := &fakeCluster{}
	c.pod("shop", "10.1.0.1", "api", registry.Healthy)
	c.pod("shop", "10.1.0.2", "other", registry.Healthy)
	c.pod("else", "10.1.0.3", "api", registry.Healthy)
	web := registry.ObjectKey{Namespace: "shop", Name: "web"}
	c.selectors = c.selectors.With(web, &registry.Selector{
		Service: &registry.Service{Key: registry.Key{Host: "web.shop.svc.cluster.local", Namespace: "shop"},
			Ports: []registry.Port{{Number: 80, Name: "http"}}},
		Labels: map[string]string{"app": "web"}, Targets: map[string]string{"http": "web-port"},
	})
	objs := with(objects{}, config.ServiceEntry, "api", selecting)
	objs = with(objs, config.ServiceEntry, "all", everything)
	vm := func(address string, ports map[string]uint32) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: address, Ports: ports, Labels: map[string]string{"app": "web"}}
	}
	objs = with(objs, config.WorkloadEntry, "vm", vm("10.2.0.1", map[string]uint32{"web-port": 9090}))
	d := entry.New(nil, c)
	const services = `shop/all.shop [] auto true ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 0 external true
  10.2.0.1 ports map[web-port:9090] labels map[app:web] locality  weight 0 sa "" tls "" workload shop/vm
shop/api.shop [] auto true ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 0 external true
  10.1.0.1 ports map[http:8080] labels map[app:api] locality  weight 0 sa "" tls "" workload shop/pod
`
	const selected = `shop/web.shop.svc.cluster.local [] auto false ports [{80 http UNKNOWN 0}] resolution 0 external false
  10.2.0.1 ports map[http:9090 web-port:9090] labels map[app:web] locality  weight 0 sa "" tls "" workload shop/vm
`
	derived := func(step, want string) {
		t.Helper()
		if diff := cmp.Diff(want, text(d.Derive(objs))); diff != "" {
			t.Errorf("%s: -want +got\n%s", step, diff)
		}
	}
	derived("at first", services+selected)
	derived("nothing changed", "")
	objs = objs.Without(config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "all"})
	derived("without the empty selector", "shop/all.shop gone\n")

	c.pod("shop", "10.1.0.2", "api", registry.Healthy)
	derived("a Pod has other labels", `shop/api.shop [] auto true ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 0 external true
  10.1.0.1 ports map[http:8080] labels map[app:api] locality  weight 0 sa "" tls "" workload shop/pod
  10.1.0.2 ports map[http:8080] labels map[app:api] locality  weight 0 sa "" tls "" workload shop/pod
`)
	c.pod("shop", "10.1.0.3", "third", registry.Healthy)
	derived("a Pod that nothing selects", "")

	objs = with(objs, config.WorkloadEntry, "vm", vm("10.2.0.1", nil))
	got := text(d.Derive(objs))
	want := `shop/web.shop.svc.cluster.local [] auto false ports [{80 http UNKNOWN 0}] resolution 0 external false
  10.2.0.1 ports map[http:0] labels map[app:web] locality  weight 0 sa "" tls "" workload shop/vm
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a WorkloadEntry without the named port: -want +got\n%s", diff)
	}

	c.selectors = c.selectors.Without(web)
	derived("the Service is deleted", "selected by kubernetes shop/web gone\n")
	objs = with(objs, config.WorkloadEntry, "vm2", vm("10.2.0.2", nil))
	derived("a WorkloadEntry that the Service selected", "")
}

// A change of a cluster wakes those who watch the Deriver.
func TestWatchClusters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, b := &fakeCluster{}, &fakeCluster{}
	changed := entry.New(nil, a, b).Watch(ctx)
	for _, c := range []*fakeCluster{a, b, a} {
		c.Notify()
		<-changed
	}
}
