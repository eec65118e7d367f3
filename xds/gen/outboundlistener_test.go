package gen

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// planLines writes down the listeners of a scope: one line for each, and one for each chain.
func planLines(t *testing.T, sc *push.Scope) []string {
	t.Helper()
	var out []string
	set := New().Set(resource.ListenerType, sc)
	for _, layer := range []*resource.Layer{set.Shared, set.Own} {
		if layer != nil {
			for _, l := range decodeListeners(t, resource.Set{Shared: layer}) {
				out = append(out, listenerLines(t, l)...)
			}
		}
	}
	return out
}

func listenerLines(t *testing.T, l *listenerv3.Listener) []string {
	t.Helper()
	head := l.Name
	for _, a := range l.AdditionalAddresses {
		head += " and " + a.Address.GetSocketAddress().Address
	}
	if l.BindToPort == nil {
		head += " bound"
	}
	if l.UseOriginalDst.GetValue() {
		head += " hands on"
	}
	if len(l.ListenerFilters) > 0 && l.ListenerFilters[0].Name == "envoy.filters.listener.original_dst" {
		head += " captures"
	}
	chains := l.FilterChains
	if last := l.DefaultFilterChain; last.GetName() == "PassthroughFilterChain" {
		head += " else" + chainLine(t, last)[len("all->"):]
	} else if last != nil {
		chains = append(chains, last)
	}
	out := []string{head}
	for _, c := range chains {
		out = append(out, "  "+chainLine(t, c))
	}
	return out
}

func chainLine(t *testing.T, c *listenerv3.FilterChain) string {
	t.Helper()
	s, m := "", c.FilterChainMatch
	if m == nil {
		s = "all"
	}
	if m.GetDestinationPort() != nil {
		s += fmt.Sprintf("port %d ", m.DestinationPort.Value)
	}
	var subnets []string
	for _, p := range m.GetPrefixRanges() {
		subnets = append(subnets, fmt.Sprintf("%s/%d", p.AddressPrefix, p.PrefixLen.Value))
	}
	if subnets != nil {
		s += fmt.Sprintf("%v ", subnets)
	}
	if m.GetServerNames() != nil {
		s += fmt.Sprintf("sni %v ", m.ServerNames)
	}
	if slices.Equal(m.GetApplicationProtocols(), []string{"http/1.1", "h2c"}) {
		s += "http "
	}
	s += "-> "
	if c.TransportSocket != nil {
		s += "tls "
	}
	last := c.Filters[len(c.Filters)-1]
	manager, proxy := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
	if last.GetTypedConfig().MessageIs(manager) {
		if err := last.GetTypedConfig().UnmarshalTo(manager); err != nil {
			t.Fatal(err)
		}
		return s + "route " + manager.GetRds().GetRouteConfigName() + manager.GetRouteConfig().GetName()
	}
	if err := last.GetTypedConfig().UnmarshalTo(proxy); err != nil {
		t.Fatal(err)
	}
	if c := proxy.GetCluster(); c != "" {
		s += c + " "
	}
	for _, w := range proxy.GetWeightedClusters().GetClusters() {
		s += w.Name + " "
	}
	for _, w := range proxy.GetWeightedClusters().GetClusters() {
		s += fmt.Sprintf("%d ", w.Weight)
	}
	if d := proxy.IdleTimeout; d != nil {
		s += "idle " + d.AsDuration().String() + " "
	}
	if d := proxy.MaxDownstreamConnectionDuration; d != nil {
		s += "lifetime " + d.AsDuration().String() + " "
	}
	if len(proxy.HashPolicy) > 0 {
		s += "by source "
	}
	return s[:len(s)-1]
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
	db := gentest.Service("db", 3, "10.0.0.3", "tcp/3306")
	lan := gentest.Service("lan", 1, "10.1.0.0/16", "tcp/5000")
	secure := gentest.Service("secure", 2, "", "https/443")
	hidden := gentest.Service("hidden", 1, "", "tls/443")
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
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("web", 1, "", "http/80"))),
			want:  []string{"0.0.0.0_80 else PassthroughCluster", "  http -> route 80"}},
		{name: "registry only",
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("web", 1, "", "http/80"))),
			edit: func(sc *push.Scope) {
				sc.Mesh.Config.OutboundTrafficPolicy = &mesh.MeshConfig_OutboundTrafficPolicy{Mode: mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
			},
			want: []string{"0.0.0.0_80 else BlackHoleCluster", "  http -> route 80"}},
		{name: "a Sidecar's policy with an egress proxy",
			scope: gentest.Scope(),
			edit: func(sc *push.Scope) {
				sc.Sidecar = &push.SidecarConfig{Spec: &networking.Sidecar{OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{
					Mode: networking.OutboundTrafficPolicy_ALLOW_ANY, EgressProxy: &networking.Destination{Host: "egress", Port: &networking.PortSelector{Number: 8080}, Subset: "a"},
				}}}
			}},
		{name: "http and tcp on one port are told apart",
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("web", 1, "", "http/80"),
				gentest.Service("raw", 1, "", "tcp/80"))),
			want: []string{"0.0.0.0_80", "  http -> route 80", "  all-> outbound|80||raw"}},
		{name: "of two tcp services on one address the older one takes all",
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("new", 1, "", "tcp/80"), gentest.Service("old", 2, "", "tcp/80"))),
			want:  []string{"0.0.0.0_80", "  all-> outbound|80||old"}},
		{name: "http within the prefix of a sniffed service",
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("sniffed", 1, "10.9.0.0/16", "x/80"))),
			want: []string{"0.0.0.0_80 else PassthroughCluster", "  http -> route 80",
				"  [10.9.0.0/16] http -> route 80",
				"  [10.9.0.0/16] -> outbound|80||sniffed"}},
		{name: "tls by name on a shared address",
			scope: gentest.Scope(gentest.Egress(nil, hidden, secure)),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [secure] -> outbound|443||secure",
				"  sni [hidden] -> outbound|443||hidden"}},
		{name: "tls on its own address needs no name",
			scope: gentest.Scope(gentest.Egress(nil, gentest.Service("vip", 1, "10.0.0.9", "tls/443"))),
			want:  []string{"10.0.0.9_443", "  all-> outbound|443||vip"}},
		{name: "tcp route without match takes all",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Route: to("other")}, {Route: to("never")},
				}}))),
			want: []string{"10.0.0.3_3306", "  all-> outbound|1||other"}},
		{name: "tcp route of a wildcard host",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, gentest.Service("a.example", 1, "10.0.0.3", "tcp/3306")),
				testVS("a", &networking.VirtualService{Hosts: []string{"*.example"},
					Tcp: []*networking.TCPRoute{{Route: to("other")}}}))),
			want: []string{"10.0.0.3_3306", "  all-> outbound|1||other"}},
		{name: "tcp route of another port, gateway or source does not count",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{Port: 1}), Route: to("port")},
					{Match: l4(&networking.L4MatchAttributes{Gateways: []string{"shop/gw"}}), Route: to("gateway")},
					{Match: l4(&networking.L4MatchAttributes{SourceNamespace: "other"}), Route: to("source")},
				}}))),
			want: []string{"10.0.0.3_3306", "  all-> outbound|3306||db"}},
		{name: "tcp route of a source that holds",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Match: l4(conditional), Route: to("source")},
				}}))),
			edit: func(sc *push.Scope) {
				var lists intern.Lists[any]
				sc.RouteSources = lists.Of([]any{conditional, &networking.HTTPMatchRequest{}})
			},
			want: []string{"10.0.0.3_3306", "  all-> outbound|1||source"}},
		{name: "tcp routes by destination subnet, disjoint",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, lan), testVS("a",
				&networking.VirtualService{Hosts: []string{"lan"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.5.9/24", "10.1.7.1"}}), Route: to("a")},
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.7.1/32", "10.1.8.0/24"}}), Route: to("b")},
				}}))),
			want: []string{"0.0.0.0_5000 else PassthroughCluster", "  [10.1.5.0/24] -> outbound|1||a", "  [10.1.7.1/32] -> outbound|1||a",
				"  [10.1.8.0/24] -> outbound|1||b", "  [10.1.0.0/16] -> outbound|5000||lan"}},
		{name: "a subnet route that takes the whole prefix leaves nothing to the service",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, lan), testVS("a",
				&networking.VirtualService{Hosts: []string{"lan"}, Tcp: []*networking.TCPRoute{
					{Match: l4(&networking.L4MatchAttributes{DestinationSubnets: []string{"10.1.0.0/16"}}), Route: to("a")},
				}}))),
			want: []string{"0.0.0.0_5000 else PassthroughCluster", "  [10.1.0.0/16] -> outbound|1||a"}},
		{name: "weighted clusters, those of weight zero left out",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, db), testVS("a",
				&networking.VirtualService{Hosts: []string{"db"}, Tcp: []*networking.TCPRoute{
					{Route: []*networking.RouteDestination{tcpRoute("x", 1, 80), tcpRoute("y", 2, 20), tcpRoute("z", 3, 0)}},
				}}))),
			want: []string{"10.0.0.3_3306", "  all-> outbound|1||x outbound|2||y 80 20"}},
		{name: "tls routes by name, a repeated name belongs to the first",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, secure),
				testVS("a", &networking.VirtualService{Hosts: []string{"secure"}, Tls: []*networking.TLSRoute{
					{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"secure", "other"}}}, Route: to("a")},
					{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"other", "third"}}}, Route: to("b")},
				}}))),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [other secure] -> outbound|1||a",
				"  sni [third] -> outbound|1||b"}},
		{name: "tls route of another port leaves the service",
			scope: gentest.Scope(withRoutes(gentest.Egress(nil, secure),
				testVS("a", &networking.VirtualService{Hosts: []string{"secure"}, Tls: []*networking.TLSRoute{
					{Match: []*networking.TLSMatchAttributes{{Port: 444, SniHosts: []string{"secure"}}}, Route: to("a")},
				}}))),
			want: []string{"0.0.0.0_443 else PassthroughCluster", "  sni [secure] -> outbound|443||secure"}},
		{name: "bound listeners let nothing through that they do not know",
			scope: onlyOutbound(gentest.Scope(gentest.Egress(nil, gentest.Service("web", 1, "", "http/80"), secure, hidden))),
			want: []string{"0.0.0.0_443 bound", "  sni [secure] -> outbound|443||secure",
				"  sni [hidden] -> outbound|443||hidden", "0.0.0.0_80 bound", "  all-> route 80"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.edit != nil {
				tt.edit(tt.scope)
			}
			want := tt.want
			if tt.scope.Interception != push.None {
				want = append(want, virtualOutboundLines(layout.CatchAllCluster(tt.scope))...)
			}
			if d := cmp.Diff(want, planLines(t, tt.scope)); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
		})
	}
}
