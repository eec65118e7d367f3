package xds_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/registry/shared"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// fixed is a source that says one thing.
type fixed []*config.Object

func (fixed) Name() string { return "fixed" }

func (f fixed) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	select {
	case out <- feed.Batch[*config.Object]{Source: "fixed", Full: true,
		Updates: []feed.Update[*config.Object]{{Group: "all", Items: f}}}:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// shop is two services: web, whose endpoints are the workloads of the groups web and spare, and api
// with one of its own.
func shop() fixed {
	var out fixed
	add := func(kind config.Kind, name string, spec proto.Message) {
		o := &config.Object{Key: config.Key{Kind: kind, Namespace: "shop", Name: name}, Spec: spec}
		o.Hash = config.HashOf(o)
		out = append(out, o)
	}
	ports := []*networking.ServicePort{{Number: 80, Name: "http", TargetPort: 8080}}
	add(config.ServiceEntry, "web", &networking.ServiceEntry{Hosts: []string{"web.shop"},
		Addresses: []string{"240.0.0.1"}, Ports: ports, Location: networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC, WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": "web"}}})
	add(config.ServiceEntry, "api", &networking.ServiceEntry{Hosts: []string{"api.shop"},
		Addresses: []string{"240.0.0.2"}, Ports: ports, Location: networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC, Endpoints: []*networking.WorkloadEntry{{Address: "10.0.9.9"}}})
	for _, group := range []string{"web", "spare"} {
		add(config.WorkloadGroup, group,
			&networking.WorkloadGroup{Template: &networking.WorkloadEntry{Labels: map[string]string{"app": "web"}}})
	}
	return out
}

// world is a whole control plane on a port of its own.
type world struct {
	t    *testing.T
	addr string
	// stop ends it.
	stop func()
}

// newWorld runs one over the registrations in a store.
func newWorld(t *testing.T, addr string, store record.Store) *world {
	t.Helper()
	rt, err := shared.New(t.Context(), shared.Config{Records: store, SingleReplica: true, Log: testlog.New(t), Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s, err := xds.New(xds.Config{Generator: gen.New(), Log: testlog.New(t), Runtime: rt, RegisterAnybody: true})
	if err != nil {
		t.Fatal(err)
	}
	a := push.NewAssembler(push.AssemblerConfig{
		Sources: push.Sources{Objects: []push.Source[*config.Object]{{Source: shop()}}}, Deriver: entry.New(rt),
		Mesh:    &push.Mesh{Config: &mesh.MeshConfig{RootNamespace: "istio-system"}, Domain: "cluster.local"},
		Publish: func(c *push.Context, changes push.Changes) { s.Publish(c, changes.Since) },
	})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(xds.ServerOptions()...)
	s.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	runtime, stop := context.WithCancel(context.Background())
	done := make(chan error, 4)
	for _, f := range []func() error{func() error { return s.Run(ctx) }, func() error { return a.Run(ctx) },
		func() error { return g.Serve(l) }} {
		go func() { done <- f() }()
	}
	go func() { done <- rt.Run(runtime) }()
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		stop()
		g.Stop()
		cancel()
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(end)
	return &world{t: t, addr: l.Addr().String(), stop: end}
}

// joins connects the proxy of a workload of shop.
func (w *world) joins(t *testing.T, group, ip string) *line {
	t.Helper()
	l := call(t, &plane{addr: w.addr}, nil)
	n := node(t, map[string]any{"AUTO_REGISTER_GROUP": group, "INSTANCE_IPS": ip})
	n.Id = "sidecar~" + ip + "~" + group + "-" + ip + ".shop~shop.svc.cluster.local"
	if err := l.connects(n); err != nil {
		t.Fatal(err)
	}
	return l
}

// watcher is a proxy that asks for endpoints and writes down what it is sent.
type watcher struct {
	*line
	sent []string // names of resources, in order
	have map[string][]string
}

const webCluster, apiCluster = "outbound|80||web.shop", "outbound|80||api.shop"

func (w *world) watches(t *testing.T) *watcher {
	t.Helper()
	x := &watcher{line: call(t, &plane{addr: w.addr}, nil), have: map[string][]string{}}
	if err := x.connects(node(t, map[string]any{})); err != nil {
		t.Fatal(err)
	}
	x.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType,
		ResourceNamesSubscribe: []string{webCluster, apiCluster}})
	return x
}

// sees takes in endpoints until those of web are want.
func (x *watcher) sees(want ...string) {
	x.t.Helper()
	for first := true; first || !slices.Equal(x.have[webCluster], want); first = false {
		r, err := x.hears(resource.EndpointType)
		if err != nil {
			x.t.Fatalf("web has %v, want %v: %v", x.have[webCluster], want, err)
		}
		for _, res := range r.Resources {
			var a endpointv3.ClusterLoadAssignment
			if err := res.Resource.UnmarshalTo(&a); err != nil {
				x.t.Fatal(err)
			}
			x.sent = append(x.sent, res.Name)
			x.have[res.Name] = nil
			for _, l := range a.Endpoints {
				for _, ep := range l.LbEndpoints {
					addr := ep.GetEndpoint().Address.GetSocketAddress()
					x.have[res.Name] = append(x.have[res.Name], fmt.Sprintf("%s:%d", addr.Address, addr.GetPortValue()))
				}
			}
		}
	}
	slices.Sort(x.have[webCluster])
}

// A workload that registers is an endpoint for others; what becomes of its health costs them one
// resource.
func TestRegisteredWorkloadIsAnEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testport.Address(t), record.NewMemory())
	eventually(t, func() string { return w.ready() })
	first := w.joins(t, "web", "10.0.0.1")
	x := w.watches(t)
	x.sees("10.0.0.1:8080")
	if got := strings.Join(x.have[apiCluster], " "); got != "10.0.9.9:8080" {
		t.Errorf("api has %s", got)
	}
	second := w.joins(t, "web", "10.0.0.2")
	x.sees("10.0.0.1:8080", "10.0.0.2:8080")
	x.sent = nil
	second.reports("503")
	x.sees("10.0.0.1:8080")
	second.reports("")
	x.sees("10.0.0.1:8080", "10.0.0.2:8080")
	w.joins(t, "spare", "10.0.0.1") // the same machine under another group: one endpoint all the same
	first.reports("503")
	first.reports("")
	second.reports("503")
	x.sees("10.0.0.1:8080")
	for _, name := range x.sent {
		if name != webCluster {
			t.Errorf("health of web sends %s", name)
		}
	}
}

// ready says what keeps a control plane from serving.
func (w *world) ready() string {
	err := call(w.t, &plane{addr: w.addr}, nil).connects(node(w.t, map[string]any{}))
	if err != nil {
		return err.Error()
	}
	return ""
}

// A control plane that is killed comes back with everybody who was registered: nobody is told
// otherwise in between.
func TestKilledControlPlane(t *testing.T) {
	t.Parallel()
	addr, store := testport.Address(t), record.NewMemory()
	w := newWorld(t, addr, store)
	eventually(t, func() string { return w.ready() })
	w.joins(t, "web", "10.0.0.1")
	w.joins(t, "web", "10.0.0.2").reports("503")
	x := w.watches(t)
	for len(x.have[webCluster]) != 1 {
		x.sees("10.0.0.1:8080")
	}
	eventually(t, func() string {
		list, err := store.List(t.Context(), "registration")
		if err != nil || !slices.ContainsFunc(list, func(r record.Record) bool { return strings.Contains(string(r.Value), "503") }) {
			return fmt.Sprintf("saved: %s, %v", list, err)
		}
		return ""
	})
	w.stop()
	w = newWorld(t, addr, store)
	eventually(t, func() string { return w.ready() })
	x = w.watches(t) // before any workload has come back
	x.sees("10.0.0.1:8080")
	if len(x.sent) != 2 {
		t.Errorf("sent %v at first", x.sent)
	}
	w.joins(t, "web", "10.0.0.2").reports("")
	x.sees("10.0.0.1:8080", "10.0.0.2:8080")
}
