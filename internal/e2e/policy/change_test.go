package policy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// staged is a Generator whose listeners and clusters are those of the test, with the filters and
// the marks of the real one, and its clusters of providers that the test runs; everything else is
// the real one's.
type staged struct {
	*gen.Generator
	t        *testing.T
	w        *world
	http     uint32
	tcp      uint32
	clusters []*clusterv3.Cluster
	// withheld is a filter that never arrives; set before the server starts.
	withheld string
}

func (s *staged) Set(typeURL string, sc *push.Scope) resource.Set {
	switch typeURL {
	case resource.ClusterType:
		set := layer(s.clusters, resource.ClusterType, (*clusterv3.Cluster).GetName)
		return resource.Set{Shared: resource.NewLayer(append(providers(s.Generator.Set(typeURL, sc)),
			set.Shared.Items()...))}
	case resource.ListenerType:
		return layer(s.listeners(sc), resource.ListenerType, (*listenerv3.Listener).GetName)
	case resource.ExtensionConfigType:
		set := s.Generator.Set(typeURL, sc)
		var items []*resource.Resource
		for r := range set.All() {
			if r.Name != s.withheld {
				items = append(items, r)
			}
		}
		return resource.Set{Shared: resource.NewLayer(items)}
	}
	return s.Generator.Set(typeURL, sc)
}

func layer[M proto.Message](all []M, typeURL string, name func(M) string) resource.Set {
	items := make([]*resource.Resource, 0, len(all))
	for _, m := range all {
		items = append(items, resource.New(typeURL, name(m), nil, func() []byte { return resource.Encode(m) }))
	}
	return resource.Set{Shared: resource.NewLayer(items)}
}

// listeners are one for requests and one for connections.
func (s *staged) listeners(sc *push.Scope) []*listenerv3.Listener {
	l := decode(s.t, s.Generator.Set(resource.ListenerType, sc),
		func() *listenerv3.Listener { return &listenerv3.Listener{} })["virtualInbound"]
	var out []*listenerv3.Listener
	for own, port := range map[uint32]uint32{8080: s.http, 9000: s.tcp} {
		for _, c := range l.GetFilterChains() {
			if c.GetFilterChainMatch().GetDestinationPort().GetValue() == own {
				made := s.w.listen(s.t, port, c.Filters)
				for _, chain := range made.FilterChains {
					chain.Metadata = c.Metadata
				}
				out = append(out, made)
				break
			}
		}
	}
	return out
}

// stage is an Envoy that a server configures.
type stage struct {
	*world
	t      *testing.T
	server *xds.Server
	tb     *table
	admin  *http.Client
	last   *push.Context
}

// newStage starts both.
func newStage(t *testing.T, withheld string) *stage {
	t.Helper()
	w := newWorld(t)
	s := &stage{world: w, t: t, tb: &table{name: t.Name(), http: uint32(testport.Free(t)),
		tcp: uint32(testport.Free(t))}}
	server, err := xds.New(xds.Config{
		RemovalWait: time.Second, // the tests wait for removals
		Generator: &staged{Generator: gen.New(), t: t, w: w, http: s.tb.http, tcp: s.tb.tcp, clusters: w.backends(t),
			withheld: withheld},
		Log: testlog.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	g := grpc.NewServer(xds.ServerOptions()...)
	server.Register(g)
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- server.Run(ctx) }()
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		cancel()
		g.Stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("server: %v", err)
			}
		}
	})
	s.startEnvoy(l.Addr().String())
	return s
}

// startEnvoy runs an Envoy that asks the server at an address.
func (s *stage) startEnvoy(server string) {
	dir, err := os.MkdirTemp("", "policy") // t.TempDir is too long for the name of a socket
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	})
	socket := filepath.Join(dir, "admin")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	s.admin = &http.Client{Transport: transport}
	s.t.Cleanup(transport.CloseIdleConnections)
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion: corev3.ApiVersion_V3}
	node, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop", "INSTANCE_IPS": "10.0.0.9",
		"LABELS": map[string]any{"app": "web"}})
	if err != nil {
		s.t.Fatal(err)
	}
	runEnvoy(s.t, &bootstrapv3.Bootstrap{
		Node:  &corev3.Node{Id: "sidecar~10.0.0.9~web-1.shop~shop.svc.cluster.local", Cluster: "web", Metadata: node},
		Admin: &bootstrapv3.Admin{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: socket}}}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds"}}}},
			},
			CdsConfig: ads, LdsConfig: ads,
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{cluster(s.t, "xds",
			netip.MustParseAddrPort(server).String(), true)}},
	}, "--drain-time-s", "1")
}

// publish makes the server send policies, and revocations in the form of a table's part.
func (s *stage) publish(policies, revoked string) {
	s.t.Helper()
	s.show(archive(policies, revoked))
}

// show makes the server send the objects of a table.
func (s *stage) show(a *txtar.Archive) {
	s.t.Helper()
	s.tb.archive = a
	in := s.inputs(s.t, s.tb)
	s.last = push.Build(s.last, in)
	s.server.Publish(s.last, time.Now())
}

// stat is a counter or gauge of Envoy's; zero when there is none.
func (s *stage) stat(name string) int {
	r, err := s.admin.Get("http://envoy/stats?filter=^" + name + "$")
	if err != nil {
		return 0
	}
	b, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	_, v, _ := strings.Cut(strings.TrimSpace(string(b)), ": ")
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0
	}
	return n
}

// eventually waits until f returns nothing, which says what is missing.
func (s *stage) eventually(what string, f func() string) {
	s.t.Helper()
	missing := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if missing = f(); missing == "" {
			return
		}
	}
	s.t.Fatalf("%s: %s", what, missing)
}

// held is one connection that stays open.
type held struct {
	net.Conn
	r *bufio.Reader
}

func (s *stage) hold(port uint32, from string) *held {
	s.t.Helper()
	c, err := s.dial(s.t.Context(), s.t, port, from, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() }) // may be closed already
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return &held{c, bufio.NewReader(c)}
}

// get is the status of a request on the connection.
func (h *held) get(t *testing.T, header string) int {
	t.Helper()
	if _, err := fmt.Fprintf(h, "GET / HTTP/1.1\r\nhost: web.example\r\n%s\r\n", header); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(h.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if resp.Close {
		t.Fatal("the connection is being drained")
	}
	return resp.StatusCode
}

// serves says whether a line comes back on the connection.
func (h *held) serves() bool {
	if _, err := h.Write([]byte("hello\n")); err != nil {
		return false
	}
	line, err := h.r.ReadString('\n')
	if line == greeting {
		line, err = h.r.ReadString('\n')
	}
	return err == nil && line == "hello\n"
}

// becomes waits until requests on the connection get a status.
func (s *stage) becomes(what string, h *held, header string, want int) {
	s.t.Helper()
	s.eventually(what, func() string {
		if got := h.get(s.t, header); got != want {
			return fmt.Sprintf("a request on the open connection gets %d, want %d", got, want)
		}
		return ""
	})
}

const policyHead = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a, namespace: shop}\nspec: "

// A changed policy, and a revocation, hold for the next request of a connection that was open
// before. No listener is drained, so raw connections that were open stay open.
func TestChangesHoldForOpenConnections(t *testing.T) {
	t.Parallel()
	s := newStage(t, "")
	s.publish("", "")
	s.eventually("start", func() string {
		if s.stat("listener_manager.total_listeners_active") != 2 {
			return "the listeners are not there"
		}
		return ""
	})
	a, b := s.hold(s.tb.http, "shop/a"), s.hold(s.tb.http, "shop/b")
	raw := s.hold(s.tb.tcp, "shop/a")
	if a.get(t, "") != 200 || b.get(t, "") != 200 || !raw.serves() {
		t.Fatal("nothing passes before there are policies")
	}

	s.publish(policyHead+`{action: DENY, rules: [{from: [{source: {principals: ["*/sa/a"]}}]}]}`, "")
	s.becomes("a policy denies", a, "", 403)
	s.eventually("a policy denies", func() string {
		if got := s.connect(t, s.tb, "shop/a", nil); got != "closed" {
			return "a new connection is " + got
		}
		return ""
	})
	if got := b.get(t, ""); got != 200 {
		t.Errorf("a caller whom the policy does not deny gets %d", got)
	}
	if !raw.serves() {
		t.Error("a policy ended a connection")
	}

	s.publish(policyHead+`{action: CUSTOM, provider: {name: judge}, rules: [{}]}`, "")
	s.becomes("a provider is asked", a, "x-pass: no\r\n", 401)
	s.becomes("a provider is asked", a, "x-pass: yes\r\n", 200)
	s.publish("", "")
	s.becomes("no provider is asked any more", a, "x-pass: no\r\n", 200)

	s.revocations(a, b)
	if !raw.serves() {
		t.Error("a revocation ended a connection")
	}
	if n := s.stat("listener_manager.listener_modified") + s.stat("listener_manager.listener_in_place_updated"); n != 0 {
		t.Errorf("policies and revocations changed %d listeners", n)
	}
}

// revocations revokes a by its identity, b by its certificate, and takes both back.
func (s *stage) revocations(a, b *held) {
	t := s.t
	t.Helper()
	s.publish("", "identity shop/a\n")
	s.becomes("an identity is revoked", a, "", 403)
	if got := b.get(t, ""); got != 200 {
		t.Errorf("another identity is revoked: got %d", got)
	}
	s.eventually("an identity is revoked", func() string {
		if got := s.connect(t, s.tb, "shop/a", nil); got != "closed" {
			return "a new connection is " + got
		}
		return ""
	})
	s.publish("", "")
	s.becomes("an identity is restored", a, "", 200)
	s.publish("", "certificate shop/b\n")
	s.becomes("a certificate is revoked", b, "", 403)
	s.publish("", "")
	s.becomes("a certificate is restored", b, "", 200)
}

// A filter that never arrives keeps its listener closed: no request passes without a check. An
// Envoy that starts opens none of its listeners until all have their filters.
func TestMissingPolicyRefuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, "ashore.authz.deny")
	s.publish("", "")
	s.eventually("start", func() string {
		if s.stat("listener_manager.total_listeners_active") != 2 {
			return "Envoy has not heard of its listeners"
		}
		return ""
	})
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, port := range []uint32{s.tb.http, s.tb.tcp} {
			if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp",
				fmt.Sprintf("%s:%d", address, port)); err == nil {
				_ = conn.Close() // it should not have been there
				t.Fatalf("port %d is open without its policy", port)
			}
		}
	}
}
