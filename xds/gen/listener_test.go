package gen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// decodeListeners reads the listeners of a set and checks each against its rules.
func decodeListeners(t testing.TB, set resource.Set) []*listenerv3.Listener {
	t.Helper()
	var out []*listenerv3.Listener
	for r := range set.All() {
		l := &listenerv3.Listener{}
		if err := proto.Unmarshal(r.Body(), l); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		if err := gentest.ValidateAll(l); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		if l.Name != r.Name {
			t.Errorf("resource %s holds listener %s", r.Name, l.Name)
		}
		out = append(out, l)
	}
	return out
}

// testVS makes a VirtualService for host.
func testVS(name string, spec *networking.VirtualService) *push.VirtualService {
	o := &config.Object{Key: config.Key{Kind: config.VirtualService, Namespace: "shop", Name: name}, Spec: spec}
	return &push.VirtualService{Object: o, Spec: spec}
}

// withRoutes adds VirtualServices to an egress group.
func withRoutes(e *push.Egress, routes ...*push.VirtualService) *push.Egress {
	var lists intern.Lists[*push.VirtualService]
	e.Routes = lists.Of(routes)
	return e
}

// testOwn makes the inbound side of a workload at address: ports are "http/80" and so on.
func testOwn(address string, service *registry.Service) *push.Own {
	var addrs intern.Lists[netip.Addr]
	var inbound intern.Lists[push.Inbound]
	own := &push.Own{Addresses: addrs.Of([]netip.Addr{netip.MustParseAddr(address)})}
	var in []push.Inbound
	for _, p := range service.Ports {
		in = append(in, push.Inbound{Service: service, Port: p, TargetPort: p.Number + 8000})
	}
	own.Inbound = inbound.Of(in)
	return own
}

// testGateway makes the servers of one Gateway with the VirtualServices bound to it.
func testGateway(name string, routes []*push.VirtualService, servers ...*networking.Server) []push.GatewayServer {
	var lists intern.Lists[*push.VirtualService]
	o := &config.Object{Key: config.Key{Kind: config.Gateway, Namespace: "edge", Name: name},
		Spec: &networking.Gateway{Servers: servers}}
	var out []push.GatewayServer
	for _, s := range servers {
		out = append(out, push.GatewayServer{Gateway: o, Server: s, Port: s.Port.Number, Routes: lists.Of(routes)})
	}
	return out
}

// testRouter makes the scope of a router.
func testRouter(servers ...[]push.GatewayServer) *push.Scope {
	var lists intern.Lists[push.GatewayServer]
	sc := gentest.Scope()
	sc.Type = push.Router
	sc.Gateways = lists.Of(slices.Concat(servers...))
	return sc
}

func testServer(port uint32, protocol string, tls *networking.ServerTLSSettings, hosts ...string) *networking.Server {
	return &networking.Server{Port: &networking.Port{Number: port, Protocol: protocol,
		Name: fmt.Sprintf("%s-%d", strings.ToLower(protocol), port)}, Hosts: hosts, Tls: tls}
}

func tcpRoute(host string, port uint32, weight int32) *networking.RouteDestination {
	return &networking.RouteDestination{Destination: &networking.Destination{Host: host,
		Port: &networking.PortSelector{Number: port}}, Weight: weight}
}

// richSidecar is a scope with every kind of listener.
func richSidecar() *push.Scope {
	routes := []*push.VirtualService{
		testVS("lan", &networking.VirtualService{Hosts: []string{"lan"}, Tcp: []*networking.TCPRoute{
			{Match: []*networking.L4MatchAttributes{{DestinationSubnets: []string{"10.1.2.0/24", "10.1.3.4"}}}, Route: []*networking.RouteDestination{tcpRoute("db", 3306, 0)}},
			{Match: []*networking.L4MatchAttributes{{Port: 5000}}, Route: []*networking.RouteDestination{tcpRoute("db", 3306, 80), tcpRoute("lan", 5000, 20)}},
		}}),
		testVS("tls", &networking.VirtualService{Hosts: []string{"secure"}, Tls: []*networking.TLSRoute{
			{Match: []*networking.TLSMatchAttributes{{Port: 443, SniHosts: []string{"secure", "other"}}}, Route: []*networking.RouteDestination{tcpRoute("secure", 443, 0)}},
			{Match: []*networking.TLSMatchAttributes{{Port: 443, SniHosts: []string{"other", "third"}}}, Route: []*networking.RouteDestination{tcpRoute("db", 3306, 0)}},
		}}),
	}
	sc := gentest.Scope(withRoutes(gentest.Egress(nil,
		gentest.Service("web", 1, "10.0.0.1", "http/80", "grpc/90"),
		gentest.Service("raw", 4, "", "tcp/80"),
		gentest.Service("db", 3, "10.0.0.3", "mysql/3306"),
		gentest.Service("lan", 1, "10.1.0.0/16 10.0.0.5", "tcp/5000"),
		gentest.Service("sniffed", 1, "10.0.0.4 10.9.0.0/16", "x/80"),
		gentest.Service("secure", 1, "", "https/443"),
		gentest.Service("*.wild.example", 1, "", "tls/443"),
		gentest.Service("vip", 1, "10.0.0.9", "tls/443"),
		gentest.Service("six", 1, "2001:2::1", "tcp/70"),
	), routes...))
	sc.HTTPProxyPort = 15002
	sc.Mesh.Config.AccessLogFile = "/dev/stdout"
	sc.Mesh.Config.ProtocolDetectionTimeout = durationpb.New(100 * time.Millisecond)
	sc.Own = testOwn("10.0.0.200", gentest.Service("self", 1, "", "http/80", "tcp/81", "x/82", "udp/83"))
	return sc
}

func TestEnvoyAcceptsSidecarListeners(t *testing.T) {
	t.Parallel()
	formats := map[string]func(*mesh.MeshConfig){
		"text": func(*mesh.MeshConfig) {},
		"json": func(m *mesh.MeshConfig) { m.AccessLogEncoding = mesh.MeshConfig_JSON },
		"own text": func(m *mesh.MeshConfig) {
			m.AccessLogFormat = "%START_TIME% %REQ_WITHOUT_QUERY(:PATH)% %METADATA(CLUSTER:x)% %CEL(request.host)%"
		},
		"own json": func(m *mesh.MeshConfig) {
			m.AccessLogEncoding = mesh.MeshConfig_JSON
			m.AccessLogFormat = `{"a":{"b":"%DURATION%"}}`
		},
		"none":  func(m *mesh.MeshConfig) { m.AccessLogFile = "" },
		"block": func(m *mesh.MeshConfig) { m.OutboundTrafficPolicy = &mesh.MeshConfig_OutboundTrafficPolicy{} },
		"normalized": func(m *mesh.MeshConfig) {
			m.PathNormalization = &mesh.MeshConfig_ProxyPathNormalization{Normalization: mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES}
		},
	}
	for name, edit := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := richSidecar()
			edit(sc.Mesh.Config)
			acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
		})
	}
	t.Run("tproxy", func(t *testing.T) {
		t.Parallel()
		sc := richSidecar()
		sc.Interception = push.TProxy
		acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
	})
	t.Run("both families", func(t *testing.T) {
		t.Parallel()
		sc := richSidecar()
		sc.Own = testOwn("2001:db8::1", gentest.Service("self", 1, "", "http/80"))
		acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
	})
	t.Run("interception none", func(t *testing.T) {
		t.Parallel()
		sc := richSidecar()
		sc.Interception, sc.Bind = push.None, netip.MustParseAddr("127.0.0.9")
		sc.Sidecar = &push.SidecarConfig{Spec: &networking.Sidecar{Ingress: []*networking.IstioIngressListener{
			{Port: &networking.SidecarPort{Number: 9080, Protocol: "HTTP", Name: "http"}, DefaultEndpoint: "127.0.0.1:8080"},
			{Port: &networking.SidecarPort{Number: 9090, Protocol: "TCP", Name: "tcp"}, Bind: "127.0.0.8"},
		}}}
		acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
	})
	t.Run("unix sockets", func(t *testing.T) {
		t.Parallel()
		sc := gentest.Scope(gentest.Egress(&networking.IstioEgressListener{
			Port: &networking.SidecarPort{Number: 0,
				Protocol: "HTTP"}, Bind: "unix://" + t.TempDir() + "/a.sock", CaptureMode: networking.CaptureMode_NONE,
		}, gentest.Service("web", 1, "10.0.0.1", "http/80")))
		acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
	})
}

func TestEnvoyAcceptsGatewayListeners(t *testing.T) {
	t.Parallel()
	simple := &networking.ServerTLSSettings{
		Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/etc/certs/a.pem", PrivateKey: "/etc/certs/a.key",
		MinProtocolVersion: networking.ServerTLSSettings_TLSV1_2, CipherSuites: []string{"ECDHE-RSA-AES128-GCM-SHA256",
			"TLS_AES_128_GCM_SHA256"},
	}
	pass := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
	routes := []*push.VirtualService{testVS("all", &networking.VirtualService{
		Hosts: []string{"*"},
		Tcp:   []*networking.TCPRoute{{Route: []*networking.RouteDestination{tcpRoute("db", 3306, 0)}}},
		Tls: []*networking.TLSRoute{
			{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"a.pass.example", "b.pass.example"}}}, Route: []*networking.RouteDestination{tcpRoute("db", 3306, 0)}},
			{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"*.pass.example", "b.pass.example"}}}, Route: []*networking.RouteDestination{tcpRoute("db", 3307, 1), tcpRoute("db", 3308, 3)}},
		},
	})}
	sc := testRouter(testGateway("edge", routes,
		testServer(8080, "HTTP", nil, "*"),
		testServer(8080, "HTTP2", nil, "web.example"),
		testServer(8443, "HTTPS", simple, "web.example", "shop/api.example"),
		testServer(8443, "TLS", simple, "raw.example"),
		testServer(8443, "TLS", pass, "*.pass.example"),
		testServer(8444, "HTTPS", simple, "*"),
		testServer(9000, "TCP", nil, "*"),
	))
	acceptedByEnvoy(t, decodeListeners(t, New().Set(resource.ListenerType, sc)))
}

// testInbound makes a list of inbound ports.
func testInbound(items []push.Inbound) *intern.List[push.Inbound] {
	var lists intern.Lists[push.Inbound]
	return lists.Of(items)
}

// sharing holds the sets of a Generator while pointers are compared.
func sharing(t *testing.T, name string, a, b resource.Set, shared, own bool) {
	t.Helper()
	if got := a.Shared == b.Shared; got != shared {
		t.Errorf("%s: shared layer is the same: got %t, want %t", name, got, shared)
	}
	if got := a.Own == b.Own; got != own {
		t.Errorf("%s: own layer is the same: got %t, want %t", name, got, own)
	}
}

// What a listener does not depend on leaves its layer alone, by pointer.
func TestListenerLayersAreShared(t *testing.T) {
	t.Parallel()
	l := New()
	sc := richSidecar()
	base := l.Set(resource.ListenerType, sc)

	same := *sc
	sharing(t, "nothing changed", base, l.Set(resource.ListenerType, &same), true, true)

	route := testVS("http", &networking.VirtualService{Hosts: []string{"web"}, Http: []*networking.HTTPRoute{{}}})
	first := sc.Egress.Items()[0]
	http := *first
	http.Routes = withRoutes(&push.Egress{}, append(slices.Clone(first.Routes.Items()), route)...).Routes
	var egress intern.Lists[*push.Egress]
	changed := *sc
	changed.Egress = egress.Of([]*push.Egress{&http})
	sharing(t, "an HTTP route", base, l.Set(resource.ListenerType, &changed), true, true)

	changed = *sc
	changed.RouteSources = (&intern.Lists[any]{}).Of([]any{&networking.HTTPMatchRequest{}})
	sharing(t, "a source of HTTP routes", base, l.Set(resource.ListenerType, &changed), true, true)

	changed = *sc
	changed.Own = testOwn("10.0.0.201", gentest.Service("self", 1, "", "http/80"))
	sharing(t, "another workload", base, l.Set(resource.ListenerType, &changed), true, false)

	changed = *sc
	changed.Mesh = &push.Mesh{Config: proto.Clone(sc.Mesh.Config).(*mesh.MeshConfig)}
	changed.Mesh.Config.AccessLogFile = ""
	sharing(t, "another log", base, l.Set(resource.ListenerType, &changed), false, false)
}

// One changed service leaves the other listeners alone, by pointer.
func TestOtherListenersStay(t *testing.T) {
	t.Parallel()
	l := New()
	a, b := gentest.Service("a", 1, "10.0.0.1", "tcp/80"), gentest.Service("b", 1, "10.0.0.2", "tcp/80")
	first := gentest.Scope(gentest.Egress(nil, a, b))
	second := gentest.Scope(gentest.Egress(nil, a, gentest.Service("b", 1, "10.0.0.3", "tcp/80")))
	second.Mesh = first.Mesh
	before, after := l.Set(resource.ListenerType, first), l.Set(resource.ListenerType, second)
	if before.Get("10.0.0.1_80") != after.Get("10.0.0.1_80") {
		t.Error("the listener of the unchanged service is not the same")
	}
	if after.Get("10.0.0.2_80") != nil || after.Get("10.0.0.3_80") == nil {
		t.Error("the changed service's listener has not moved")
	}
}

// A listener names what it needs, so that it is sent after that.
func TestListenerRefs(t *testing.T) {
	t.Parallel()
	set := New().Set(resource.ListenerType, richSidecar())
	want := map[string][]string{
		"0.0.0.0_80":      {"80", "outbound|80||raw"},
		"10.0.0.4_80":     {"sniffed:80", "outbound|80||sniffed"},
		"virtualOutbound": {"BlackHoleCluster", "PassthroughCluster"},
	}
	for name, refs := range want {
		r := set.Get(name)
		if r == nil {
			t.Errorf("no listener %s", name)
			continue
		}
		var got []string
		for _, ref := range r.Refs {
			got = append(got, ref.Name)
		}
		for _, w := range refs {
			if !slices.Contains(got, w) {
				t.Errorf("%s names %v, want %s among them", name, got, w)
			}
		}
	}
}

// How each listener gets its connections, by interception.
func TestListenerSockets(t *testing.T) {
	t.Parallel()
	type socket struct{ unbound, handsOn, transparent, freebind, alone bool }
	tests := map[push.Interception]map[string]socket{
		push.Redirect: {"10.0.0.3_3306": {unbound: true}, "virtualOutbound": {handsOn: true}, "virtualInbound": {},
			"127.0.0.1_15002": {}},
		push.TProxy: {"10.0.0.3_3306": {unbound: true}, "virtualOutbound": {handsOn: true, freebind: true},
			"virtualInbound": {transparent: true}, "127.0.0.1_15002": {}},
		push.None: {"127.0.0.9_3306": {alone: true}, "127.0.0.9_15002": {alone: true}},
	}
	for interception, want := range tests {
		sc := richSidecar()
		if sc.Interception = interception; interception == push.None {
			sc.Bind = netip.MustParseAddr("127.0.0.9")
		}
		found := 0
		for _, l := range decodeListeners(t, New().Set(resource.ListenerType, sc)) {
			w, ok := want[l.Name]
			if !ok {
				continue
			}
			found++
			got := socket{
				unbound:     l.BindToPort != nil && !l.BindToPort.Value,
				handsOn:     l.GetUseOriginalDst().GetValue(),
				transparent: l.GetTransparent().GetValue(), freebind: l.GetFreebind().GetValue(),
				alone: l.EnableReusePort != nil && !l.EnableReusePort.Value,
			}
			if got != w {
				t.Errorf("interception %d, %s: got %+v, want %+v", interception, l.Name, got, w)
			}
		}
		if found != len(want) {
			t.Errorf("interception %d: found %d listeners of %d", interception, found, len(want))
		}
	}
}
