package mcp_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// served is what ours serves: the discovery server on a gRPC server.
type served struct {
	t       *testing.T
	address string
	tell    *mcp.Catalog
	xds     *xds.Server

	mu      sync.Mutex
	objects push.Objects
	mesh    *push.Mesh
	context *push.Context
}

// newServed serves over a connection without TLS; readers says who may read.
func newServed(t *testing.T, readers mcp.Readers, opts ...grpc.ServerOption) *served {
	t.Helper()
	s := &served{t: t, mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	s.tell = mcp.NewCatalog(mcp.CatalogConfig{Readers: readers, Mesh: s.mesh.Config})
	var err error
	verify := func(chain []*x509.Certificate, _ time.Time) (spiffe.ID, error) {
		if len(chain[0].URIs) == 0 {
			return spiffe.ID{}, errors.New("no identity")
		}
		return spiffe.Parse(chain[0].URIs[0].String())
	}
	if s.xds, err = xds.New(xds.Config{Generator: gen.New(), Log: testlog.New(t), Objects: s.tell,
		Verify: verify}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.xds.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	s.publish()
	s.address, _ = mcptest.Serve(t, "", s.xds.Register, append(xds.ServerOptions(), opts...)...)
	return s
}

// publish sends the objects to all readers and proxies.
func (s *served) publish() {
	objects := s.objects
	s.tell.Publish(func() mcp.Objects { return objects })
	s.xds.PublishObjects()
	s.context = push.Build(s.context, push.Inputs{Mesh: s.mesh, Objects: s.objects})
	s.xds.Publish(s.context, time.Now())
}

// put sets a ServiceEntry; "" removes it.
func (s *served) put(name, host string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name}
	if host == "" {
		s.objects = s.objects.Without(key)
		s.publish()
		return
	}
	o := &config.Object{Key: key, Labels: map[string]string{"app": name},
		Created: time.Date(2025, 1, 2, 3, 4, 5, 0,
			time.UTC), Origin: config.Origin{Source: "file:test"}, Spec: entryOf(host)}
	if problems, ok := config.Accept(o); !ok {
		s.t.Fatal(problems)
	}
	s.objects = s.objects.With(key, o)
	s.publish()
}

// peerNode is the node of another control plane, as Istio's client makes it.
func peerNode(t *testing.T) *corev3.Node {
	t.Helper()
	metadata, err := structpb.NewStruct(map[string]any{"GENERATOR": "api", "ISTIO_VERSION": "65536.65536.65536"})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: "sidecar~10.0.0.9~istiod-0.istio-system~istio-system.svc.cluster.local", Metadata: metadata}
}

// dial connects a peer.
func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// resourcesOf decodes what a peer received: "shop/web@version".
func resourcesOf(t *testing.T, r *discoveryv3.DiscoveryResponse) (names []string) {
	t.Helper()
	for _, a := range r.Resources {
		res := &mcpv1.Resource{}
		if err := a.UnmarshalTo(res); err != nil {
			t.Fatal(err)
		}
		names = append(names, res.Metadata.Name)
	}
	return names
}

// A client that sends the time as nonce with each request, as Istio's does, gets an answer every
// time, for every version of a kind. It receives changes.
func TestServedToIstiod(t *testing.T) {
	t.Parallel()
	s := newServed(t, mcp.Readers{Anybody: true})
	s.put("web", "web.test")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, s.address)).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	types := []string{"core/v1alpha1/MeshConfig", "networking.istio.io/v1/ServiceEntry",
		"networking.istio.io/v1alpha3/ServiceEntry", "networking.istio.io/v1/Gateway", "extensions.istio.io/v1alpha1/WasmPlugin"}
	node := peerNode(t)
	for _, typ := range types {
		if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typ, Node: node,
			ResponseNonce: time.Now().String()}); err != nil {
			t.Fatal(err)
		}
		node = nil
	}
	got := map[string][]string{}
	receive := func() *discoveryv3.DiscoveryResponse {
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce,
			VersionInfo: r.VersionInfo}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for range types {
		r := receive()
		if r.TypeUrl == types[0] {
			if len(r.Resources) != 1 || r.Resources[0].TypeUrl != "type.googleapis.com/istio.mesh.v1alpha1.MeshConfig" {
				t.Errorf("the mesh is %v", r.Resources)
			}
			got[r.TypeUrl] = nil
			continue
		}
		got[r.TypeUrl] = resourcesOf(t, r)
	}
	if want := "map[core/v1alpha1/MeshConfig:[] extensions.istio.io/v1alpha1/WasmPlugin:[] networking.istio.io/v1/Gateway:[] networking.istio.io/v1/ServiceEntry:[shop/web] networking.istio.io/v1alpha3/ServiceEntry:[shop/web]]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, want %s", got, want)
	}
	s.put("db", "db.test")
	for range 2 {
		if r := receive(); fmt.Sprint(resourcesOf(t, r)) != "[shop/db shop/web]" {
			t.Errorf("told %v of %s", resourcesOf(t, r), r.TypeUrl)
		}
	}
}

// Differences are one object for one changed object, and versions are hashes of contents: a client
// that reconnects to another replica receives only what differs there.
func TestServedDelta(t *testing.T) {
	t.Parallel()
	one, two := newServed(t, mcp.Readers{Anybody: true}), newServed(t, mcp.Readers{Anybody: true})
	for _, s := range []*served{one, two} {
		s.put("web", "web.test")
		s.put("db", "db.test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, one.address)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: entries, Node: peerNode(t)}); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	receive := func() *discoveryv3.DeltaDiscoveryResponse {
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Resources {
			versions[res.Name] = res.Version
			m := &mcpv1.Resource{}
			if err := res.Resource.UnmarshalTo(m); err != nil || m.Metadata.Name != res.Name ||
				m.Metadata.Version == "" || m.Metadata.CreateTime.AsTime().Year() != 2025 ||
				m.Metadata.Labels["app"] == "" {
				t.Errorf("told %v (%v)", m, err)
			}
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := receive(); len(r.Resources) != 2 {
		t.Errorf("told %v", r.Resources)
	}
	one.put("web", "www.test")
	if r := receive(); len(r.Resources) != 1 || r.Resources[0].Name != "shop/web" {
		t.Errorf("told %v", r.Resources)
	}
	one.put("db", "")
	if r := receive(); len(r.Resources) != 0 || fmt.Sprint(r.RemovedResources) != "[shop/db]" {
		t.Errorf("told %v, removed %v", r.Resources, r.RemovedResources)
	}
	two.put("web", "www.test")
	if st, err = discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t,
		two.address)).DeltaAggregatedResources(ctx); err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: entries, Node: peerNode(t),
		InitialResourceVersions: versions}); err != nil {
		t.Fatal(err)
	}
	two.put("late", "late.test")
	if r := receive(); len(r.Resources) != 1 || r.Resources[0].Name != "shop/late" || len(r.RemovedResources) != 0 {
		t.Errorf("the other replica told %v, removed %v", r.Resources, r.RemovedResources)
	}
}

// ashorectl shows which types of a stream are those of a reader: under every name that the kind has
// had, and none of a proxy's.
func TestServedIsShown(t *testing.T) {
	t.Parallel()
	s := newServed(t, mcp.Readers{Anybody: true})
	s.put("web", "web.test")
	k := newSink(t, mcp.Config{Options: mcp.Options{Address: s.address, Plaintext: true}})
	k.connected()
	shown := s.xds.Proxies()
	if len(shown) != 1 || len(shown[0].Types) < len(config.Kinds()) {
		t.Fatalf("shown are %+v", shown)
	}
	for _, ty := range shown[0].Types {
		if !ty.Objects {
			t.Errorf("%s is said to be none of configuration", ty.TypeURL)
		}
	}
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t,
		s.address)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ListenerType,
		Node: &corev3.Node{Id: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.xds.Proxies() {
		for _, ty := range p.Types {
			if p.Node.ID == "web-1.shop" && ty.Objects {
				t.Errorf("%s is said to be of configuration", ty.TypeURL)
			}
		}
	}
}

// A client without a certificate receives nothing.
func TestServedToNobody(t *testing.T) {
	t.Parallel()
	s := newServed(t, mcp.Readers{RootNamespace: "istio-system", TrustDomain: "cluster.local"})
	s.put("web", "web.test")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, s.address)).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: entries, Node: peerNode(t)}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "a client certificate with a SPIFFE ID") {
		t.Errorf("got %v", err)
	}
}

// A source follows our own server.
func TestSourceOfOurServer(t *testing.T) {
	t.Parallel()
	s := newServed(t, mcp.Readers{Anybody: true})
	s.put("web", "web.test")
	s.put("db", "db.test")
	k := newSink(t, mcp.Config{Options: mcp.Options{Address: s.address, Plaintext: true}})
	k.connected()
	s.put("web", "www.test")
	eventually(t, "the change", func() bool { return k.holds("db", "web") == "db.test www.test" })
	s.put("db", "")
	eventually(t, "the removal", func() bool { return k.holds("db", "web") == "www.test" })
	s.put("web", "")
	eventually(t, "the last removal", func() bool { return k.holds("db", "web") == "" })
	s.put("web", "back.test")
	eventually(t, "the new object", func() bool { return k.holds("web") == "back.test" })
	if e := k.status().Error; e != "" || len(k.problems()) != 0 {
		t.Errorf("error %q; problems %v", e, k.problems())
	}
}
