package gen

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
)

// String is a listener on a few lines, for tables: one line for itself, one for each chain.
func (s listenerSpec) lines() []string {
	head := s.name
	for _, w := range []struct {
		is   bool
		text string
	}{
		{s.also.IsValid(), " and " + s.also.String()},
		{s.bound, " bound"},
		{s.capture == captureHandOff, " hands on"},
		{s.capture == captureHere, " captures"},
		{s.fallback, " else " + s.base.catchAll},
	} {
		if w.is {
			head += w.text
		}
	}
	out := []string{head}
	for _, c := range s.chains.Items() {
		out = append(out, "  "+c.line())
	}
	return out
}

func (c chainSpec) line() string {
	var s string
	if c.match.all() {
		s = "all"
	}
	if c.match.port != 0 {
		s += fmt.Sprintf("port %d ", c.match.port)
	}
	if c.match.subnets != nil {
		s += fmt.Sprintf("%v ", c.match.subnets.Items())
	}
	if c.match.sni != nil {
		s += fmt.Sprintf("sni %v ", c.match.sni.Items())
	}
	if c.match.plainHTTP {
		s += "http "
	}
	s += "-> "
	if c.tls != nil {
		s += "tls "
	}
	if c.isHTTP() {
		s += "route " + c.http.route + c.http.inbound.cluster
		return s
	}
	c.tcp.clusters(func(n string) { s += n + " " })
	for _, w := range c.tcp.weighted.Items() {
		s += fmt.Sprintf("%d ", w.weight)
	}
	if c.tcp.idle.set {
		s += "idle " + c.tcp.idle.value.String() + " "
	}
	if c.tcp.lifetime.set {
		s += "lifetime " + c.tcp.lifetime.value.String() + " "
	}
	if c.tcp.hashSource {
		s += "by source "
	}
	return s[:len(s)-1]
}

// planLines plans the listeners of a scope and writes them down.
func planLines(sc *push.Scope) []string {
	l := newListeners()
	base := l.bases.Get(settingsOf(sc))
	var specs []listenerSpec
	if sc.Type == push.Router {
		in := gatewayInOf(l.servers, sc)
		specs = planGateways(&chainLists{}, gatewayListenersIn{
			layout: l.gateways.Get(in), base: base, servers: in.servers, routes: l.gatewayRoutes(sc), destinations: sc.Destinations,
		})
	} else {
		specs = planOutbound(&chainLists{}, outboundListenersIn{
			layout: l.outbounds.Get(outboundInOf(l.groups,
				sc)), base: base, routes: l.egressRoutes(sc), sources: l.connectionSources(sc), destinations: sc.Destinations,
		})
		if sc.Own != nil {
			specs = append(specs, planInbound(&chainLists{}, inboundListenersIn{base: base, workload: workloadOf(sc)})...)
		}
	}
	var out []string
	for _, s := range specs {
		out = append(out, s.lines()...)
	}
	return out
}

// onlyOutbound leaves the two listeners of redirection out.
func onlyOutbound(sc *push.Scope) *push.Scope {
	sc.Interception = push.None
	sc.Bind = netip.MustParseAddr("0.0.0.0")
	return sc
}

func virtualOutboundLines(catchAll string) []string {
	return []string{
		"virtualOutbound bound hands on",
		"  port 15001 -> BlackHoleCluster",
		"  all-> " + catchAll,
	}
}

func TestOutboundChains(t *testing.T) {
	t.Parallel()
	db := testService("db", 3, "10.0.0.3", "tcp/3306")
	lan := testService("lan", 1, "10.1.0.0/16", "tcp/5000")
	secure := testService("secure", 2, "", "https/443")
	hidden := testService("hidden", 1, "", "tls/443")
	l4 := func(m *networking.L4MatchAttributes) []*networking.L4MatchAttributes {
		return []*networking.L4MatchAttributes{m}
	}
	to := func(host string) []*networking.RouteDestination {
		return []*networking.RouteDestination{tcpRoute(host, 1, 0)}
	}
	conditional := &networking.L4MatchAttributes{SourceLabels: map[string]string{"app": "web"}}
	tests := []struct {
		name  string
		scope *push.Scope
		edit  func(*push.Scope)
		want  []string
	}{
		{name: "http on a wildcard port lets other protocols through",
			scope: testScope(testEgress(nil, testService("web", 1, "", "http/80"))),
			want:  []string{"0.0.0.0_80 else PassthroughCluster", "  http -> route 80"}},
		{name: "registry only",
			scope: testScope(testEgress(nil, testService("web", 1, "", "http/80"))),
			edit: func(sc *push.Scope) {
				sc.Mesh.Config.OutboundTrafficPolicy = &mesh.MeshConfig_OutboundTrafficPolicy{Mode: mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
			},
			want: []string{"0.0.0.0_80 else BlackHoleCluster", "  http -> route 80"}},
		{name: "a Sidecar's policy with an egress proxy",
			scope: testScope(),
			edit: func(sc *push.Scope) {
				sc.Sidecar = &push.SidecarConfig{Spec: &networking.Sidecar{OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{
					Mode: networking.OutboundTrafficPolicy_ALLOW_ANY, EgressProxy: &networking.Destination{Host: "egress", Port: &networking.PortSelector{Number: 8080}, Subset: "a"},
				}}}
			}},
		{name: "http and tcp on one port are told apart",
			scope: testScope(testEgress(nil, testService("web", 1, "", "http/80"),
				testService("raw", 1, "", "tcp/80"))),
			want: []string{"0.0.0.0_80 else PassthroughCluster", "  http -> route 80", "  all-> outbound|80||raw"}},
		{name: "of two tcp services on one address the older one takes all",
			scope: testScope(testEgress(nil, testService("new", 1, "", "tcp/80"), testService("old", 2, "", "tcp/80"))),
			want:  []string{"0.0.0.0_80 else PassthroughCluster", "  all-> outbound|80||old"}},
		{name: "http within the prefix of a sniffed service",
			scope: testScope(testEgress(nil, testService("sniffed", 1, "10.9.0.0/16", "x/80"))),
			want: []string{"0.0.0.0_80 else PassthroughCluster", "  http -> route 80",
				"  [10.9.0.0/16] http -> route 80",
				"  [10.9.0.0/16] -> outbound|80||sniffed"}},
		{name: "tls by name on a shared address",
			scope: testScope(testEgress(nil, hidden, secure)),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [secure] -> outbound|443||secure",
				"  sni [hidden] -> outbound|443||hidden"}},
		{name: "tls on its own address needs no name",
			scope: testScope(testEgress(nil, testService("vip", 1, "10.0.0.9", "tls/443"))),
			want:  []string{"10.0.0.9_443 else PassthroughCluster", "  all-> outbound|443||vip"}},
		{name: "tcp route without match takes all",
			scope: testScope(withRoutes(testEgress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Route: to("other")}, {Route: to("never")},
				}}))),
			want: []string{"10.0.0.3_3306 else PassthroughCluster", "  all-> outbound|1||other"}},
		{name: "tcp route of a wildcard host",
			scope: testScope(withRoutes(testEgress(nil, testService("a.example", 1, "10.0.0.3", "tcp/3306")),
				testVS("a", &networking.VirtualService{Hosts: []string{"*.example"},
					Tcp: []*networking.TCPRoute{{Route: to("other")}}}))),
			want: []string{"10.0.0.3_3306 else PassthroughCluster", "  all-> outbound|1||other"}},
		{name: "tcp route of another port, gateway or source does not count",
			scope: testScope(withRoutes(testEgress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{Port: 1}), Route: to("port")},
					{Match: l4(&networking.L4MatchAttributes{Gateways: []string{"shop/gw"}}), Route: to("gateway")},
					{Match: l4(&networking.L4MatchAttributes{SourceNamespace: "other"}), Route: to("source")},
				}}))),
			want: []string{"10.0.0.3_3306 else PassthroughCluster", "  all-> outbound|3306||db"}},
		{name: "tcp route of a source that holds",
			scope: testScope(withRoutes(testEgress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Match: l4(conditional), Route: to("source")},
				}}))),
			edit: func(sc *push.Scope) {
				var lists intern.Lists[any]
				sc.RouteSources = lists.Of([]any{conditional, &networking.HTTPMatchRequest{}})
			},
			want: []string{"10.0.0.3_3306 else PassthroughCluster", "  all-> outbound|1||source"}},
		{name: "tcp routes by destination subnet, disjoint",
			scope: testScope(withRoutes(testEgress(nil, lan), testVS("a",
				&networking.VirtualService{Hosts: []string{"lan"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.5.9/24", "10.1.7.1"}}), Route: to("a")},
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.7.1/32", "10.1.8.0/24"}}), Route: to("b")},
				}}))),
			want: []string{"0.0.0.0_5000 else PassthroughCluster", "  [10.1.5.0/24 10.1.7.1/32] -> outbound|1||a",
				"  [10.1.8.0/24] -> outbound|1||b", "  [10.1.0.0/16] -> outbound|5000||lan"}},
		{name: "a subnet route that takes the whole prefix leaves nothing to the service",
			scope: testScope(withRoutes(testEgress(nil, lan), testVS("a",
				&networking.VirtualService{Hosts: []string{"lan"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.0.0/16"}}), Route: to("a")},
				}}))),
			want: []string{"0.0.0.0_5000 else PassthroughCluster", "  [10.1.0.0/16] -> outbound|1||a"}},
		{name: "weighted clusters, those of weight zero left out",
			scope: testScope(withRoutes(testEgress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Route: []*networking.RouteDestination{tcpRoute("x", 1, 80), tcpRoute("y", 2, 20), tcpRoute("z", 3, 0)}},
				}}))),
			want: []string{"10.0.0.3_3306 else PassthroughCluster", "  all-> outbound|1||x outbound|2||y 80 20"}},
		{name: "tls routes by name, a repeated name belongs to the first",
			scope: testScope(withRoutes(testEgress(nil, secure),
				testVS("a", &networking.VirtualService{Hosts: []string{"secure"}, Tls: []*networking.TLSRoute{
					{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"Secure", "other"}}}, Route: to("a")},
					{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"other", "third"}}}, Route: to("b")},
				}}))),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [other secure] -> outbound|1||a",
				"  sni [third] -> outbound|1||b"}},
		{name: "tls route of another port leaves the service",
			scope: testScope(withRoutes(testEgress(nil, secure),
				testVS("a", &networking.VirtualService{Hosts: []string{"secure"}, Tls: []*networking.TLSRoute{
					{Match: []*networking.TLSMatchAttributes{{Port: 444, SniHosts: []string{"secure"}}}, Route: to("a")},
				}}))),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [secure] -> outbound|443||secure"}},
		{name: "bound listeners let nothing through that they do not know",
			scope: onlyOutbound(testScope(testEgress(nil, testService("web", 1, "", "http/80"), secure, hidden))),
			want: []string{"0.0.0.0_80 bound", "  all-> route 80", "0.0.0.0_443 bound",
				"  sni [secure] -> outbound|443||secure",
				"  sni [hidden] -> outbound|443||hidden"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.edit != nil {
				tt.edit(tt.scope)
			}
			want := tt.want
			if tt.scope.Interception != push.None {
				want = append(want, virtualOutboundLines(catchAllCluster(tt.scope))...)
			}
			if d := cmp.Diff(want, planLines(tt.scope)); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
		})
	}
}

func TestCatchAllCluster(t *testing.T) {
	t.Parallel()
	sc := testScope()
	sc.Sidecar = &push.SidecarConfig{Object: &config.Object{},
		Spec: &networking.Sidecar{OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{
			Mode: networking.OutboundTrafficPolicy_ALLOW_ANY, EgressProxy: &networking.Destination{Host: "egress",
				Port: &networking.PortSelector{Number: 8080}, Subset: "a"},
		}}}
	if got, want := catchAllCluster(sc), "outbound|8080|a|egress"; got != want {
		t.Errorf("with an egress proxy: got %s, want %s", got, want)
	}
	sc.Sidecar.Spec.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_REGISTRY_ONLY}
	if got, want := catchAllCluster(sc), "BlackHoleCluster"; got != want {
		t.Errorf("registry only: got %s, want %s", got, want)
	}
	sc.Sidecar.Spec.OutboundTrafficPolicy = nil
	if got, want := catchAllCluster(sc), "PassthroughCluster"; got != want {
		t.Errorf("nothing said: got %s, want %s", got, want)
	}
}

func TestRuleOfConnections(t *testing.T) {
	t.Parallel()
	pool := func(idle time.Duration) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: durationpb.New(idle)}}
	}
	bySource := &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{
		ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}},
	}}
	round := &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_ROUND_ROBIN}}
	rule := &push.DestinationRule{Spec: &networking.DestinationRule{
		TrafficPolicy: &networking.TrafficPolicy{
			ConnectionPool: pool(time.Minute),
			LoadBalancer:   bySource,
			PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{
				{Port: &networking.PortSelector{Number: 3306}, ConnectionPool: pool(0)},
			},
		},
		Subsets: []*networking.Subset{{Name: "v1", TrafficPolicy: &networking.TrafficPolicy{LoadBalancer: round}}},
	}}
	tests := []struct {
		name   string
		rule   *push.DestinationRule
		port   uint32
		subset string
		want   tcpSpec
	}{
		{name: "no rule"},
		{name: "the whole host", rule: rule, port: 1, want: tcpSpec{idle: optionalDuration{true, time.Minute}, hashSource: true}},
		// settings of a port replace those above them as a whole, as they do in the port's cluster
		{name: "a port", rule: rule, port: 3306, want: tcpSpec{idle: optionalDuration{true, 0}}},
		{name: "a subset", rule: rule, port: 1, subset: "v1", want: tcpSpec{idle: optionalDuration{true, time.Minute}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got tcpSpec
			got.apply(tt.rule, tt.port, tt.subset)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
