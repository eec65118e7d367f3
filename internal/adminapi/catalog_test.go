package adminapi

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// saying is a source that says what a test has it say.
type saying[T any] struct {
	name string
	say  chan feed.Batch[T]
}

func (s *saying[T]) Name() string { return s.name }

func (s *saying[T]) Run(ctx context.Context, out chan<- feed.Batch[T]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s.say:
			b.Source = s.name
			select {
			case out <- b:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// oneVIP is an allocator that has a virtual IP for web.service.consul alone.
type oneVIP struct{}

func (oneVIP) Want([]string) {}

func (oneVIP) Run(ctx context.Context, out chan<- registry.VIPs) error {
	one := registry.VIPs{}.With(pmap.String("web.service.consul"),
		registry.VIP{IPv4: netip.MustParseAddr("240.240.0.1"), IPv6: netip.MustParseAddr("2001:2::1")})
	select {
	case out <- one:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// market is a catalog over a running assembler, of files and a registry.
type market struct {
	*API
	files *saying[*config.Object]
	dc1   *saying[registry.Instances]
}

func newMarket(t *testing.T, with ...func(*push.AssemblerConfig)) *market {
	m := &market{files: &saying[*config.Object]{"files", make(chan feed.Batch[*config.Object])},
		dc1: &saying[registry.Instances]{"consul:dc1", make(chan feed.Batch[registry.Instances])}}
	var published atomic.Pointer[push.Context]
	deriver := entry.New(nil)
	cfg := push.AssemblerConfig{
		Sources: push.Sources{Objects: []push.Source[*config.Object]{{Source: m.files}},
			Services: []push.Source[registry.Instances]{{Source: m.dc1}}},
		Deriver: deriver, Allocator: oneVIP{}, Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"},
		Publish: func(c *push.Context, _ push.Changes) { published.Store(c) },
	}
	for _, change := range with {
		change(&cfg)
	}
	a := push.NewAssembler(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	m.API = &API{Published: published.Load, Assembler: a, Entries: deriver.Entries, Derived: deriver.Name()}
	return m
}

// reads has the files say what a text says.
func (m *market) reads(t *testing.T, text string) { m.readsFrom(t, m.files.name, text) }

// readsFrom is reads, of objects that call another source theirs.
func (m *market) readsFrom(t *testing.T, source, text string) {
	t.Helper()
	r := config.Parse("a.yaml", []byte(text))
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	for _, o := range r.Objects {
		o.Origin.Source = source
	}
	rest := config.Parse("rest.yaml", []byte(otherObject)).Objects // a source that loses everything retains it
	rest[0].Origin.Source = source
	m.files.say <- feed.Batch[*config.Object]{Full: true,
		Updates: []feed.Update[*config.Object]{{Group: "a.yaml", Items: r.Objects}, {Group: "rest.yaml", Items: rest}}}
}

// knows has the registry say that a host has endpoints.
func (m *market) knows(full bool, host string, endpoints ...registry.Endpoint) {
	s := &registry.Service{Key: registry.Key{Host: host, Namespace: "shop"},
		Ports: []registry.Port{{Number: 80, Name: "http",
			Protocol: registry.HTTP}}, Source: "consul", Object: "Consul service web"}
	m.dc1.say <- feed.Batch[registry.Instances]{Full: full,
		Updates: []feed.Update[registry.Instances]{{Group: host,
			Items: []registry.Instances{{Service: s, Endpoints: &registry.EndpointList{Items: endpoints}}}}}}
}

// otherObject is in the folder in addition to what a test has there.
const otherObject = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other, namespace: shop}
spec:
  host: other.service.consul
`

const marketFile = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.service.consul]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  resolution: STATIC
  workloadSelector: {labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm-1, namespace: shop}
spec: {address: 10.0.0.1, labels: {app: web}, serviceAccount: web, locality: eu/a}
`

// collected is what a question is answered with.
func (m *market) collected(t *testing.T, q admin.ServiceQuery) []admin.Service {
	t.Helper()
	out, err := m.Services(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A host that files and a registry have is one service, of which each endpoint tells whose it is,
// and who it has to be.
func TestCatalog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarket(t)
		if _, err := m.Services(t.Context(), admin.ServiceQuery{Host: "web"}); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("before there is anything: %v", err)
		}
		m.reads(t, marketFile)
		m.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.2",
			Ports: map[string]uint32{"http": 20001}, Namespace: "shop", Workload: "web-1", Health: registry.Unhealthy, TLSMode: "istio", Weight: 5})
		synctest.Wait()
		from := admin.Place{Source: "files", Object: "ServiceEntry shop/web", File: "a.yaml", Line: 1}
		want := admin.Service{
			Host: "web.service.consul", Namespace: "shop", Ports: []admin.ServicePort{{Number: 80, Name: "http",
				Protocol: "HTTP"}},
			Resolution: "STATIC", Location: "MESH_EXTERNAL", Health: admin.HealthCount{Healthy: 1, Unhealthy: 1},
			Sources: []admin.ServiceSource{{Place: from, Endpoints: 1},
				{Place: admin.Place{Source: "consul:dc1", Object: "Consul service web"}, Endpoints: 1}},
			Endpoints: []admin.Endpoint{
				{Address: "10.0.0.1", Ports: []admin.EndpointPort{{Service: 80, Name: "http", Number: 8080}}, Health: "healthy", Identity: "spiffe://cluster.local/ns/shop/sa/web", ServiceAccount: "web", Namespace: "shop",
					Workload: "vm-1", TLSMode: "istio", Locality: "eu/a", Weight: 1, Labels: map[string]string{"app": "web"}, From: admin.Place{Source: "files", Object: "WorkloadEntry shop/vm-1", File: "a.yaml", Line: 10}},
				{Address: "10.0.0.2", Ports: []admin.EndpointPort{{Service: 80, Name: "http", Number: 20001}}, Health: "unhealthy", Namespace: "shop",
					Workload: "web-1", TLSMode: "istio", Weight: 5, From: admin.Place{Source: "consul:dc1",
						Object: "Consul service web"}},
			},
		}
		got := m.collected(t, admin.ServiceQuery{Endpoints: true})
		if len(got) != 1 || !got[0].Allocated || len(got[0].Addresses) == 0 {
			t.Fatalf("got %+v", got)
		}
		got[0].Allocated, got[0].Addresses = false, nil
		if d := cmp.Diff(want, got[0]); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if s := m.collected(t, admin.ServiceQuery{Host: "WEB.service.consul", Namespace: "shop"}); len(s) != 1 ||
			s[0].Endpoints != nil {
			t.Errorf("by name: %+v", s)
		}
		if s := m.collected(t, admin.ServiceQuery{Namespace: "other"}); len(s) != 0 {
			t.Errorf("of another namespace: %+v", s)
		}
		for _, q := range []admin.ServiceQuery{{Host: "web"}, {Namespace: "other", Host: "web.service.consul"}} {
			if _, err := m.Services(t.Context(), q); !errors.Is(err, admin.ErrNotFound) ||
				!strings.Contains(err.Error(), "ashorectl get services") {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// A source whose endpoints are not used is listed without any.
func TestCatalogShadowed(t *testing.T) {
	t.Parallel()
	svc := &registry.Service{Key: registry.Key{Host: "web", Namespace: "shop"}, Ports: []registry.Port{{Number: 80}}}
	one := registry.Instances{Service: svc, Endpoints: &registry.EndpointList{Items: make([]registry.Endpoint, 1)}}
	two := registry.Instances{Service: svc, Endpoints: &registry.EndpointList{Items: make([]registry.Endpoint, 2)}}
	c := &API{Derived: "serviceentry"}
	got := c.service(push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}}), registry.Joined{
		Instances: one, Parts: []registry.Part{{Instances: one, Source: "a", Used: 1}, {Instances: two, Source: "b"}},
	}, true)
	want := []admin.ServiceSource{{Place: admin.Place{Source: "a"}, Endpoints: 1},
		{Place: admin.Place{Source: "b"}}}
	if d := cmp.Diff(want, got.Sources); d != "" || len(got.Endpoints) != 1 {
		t.Errorf("%d endpoints; (-want +got):\n%s", len(got.Endpoints), d)
	}
}

// Of an endpoint those ports are listed that it has, and those that are not served.
func TestCatalogLackingPort(t *testing.T) {
	t.Parallel()
	s := &registry.Service{Ports: []registry.Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "admin"}}}
	got := endpoint(push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}}), s,
		&registry.Endpoint{Ports: map[string]uint32{"admin": 0}, States: "80=closed,9000=closed"}, admin.Place{})
	if d := cmp.Diff([]uint32{80}, got.NotServed); d != "" {
		t.Errorf("not served (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]admin.EndpointPort{{Service: 80, Name: "http", Number: 80}}, got.Ports); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
