package gen

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

func TestInboundListeners(t *testing.T) {
	t.Parallel()
	self := gentest.Service("self", 1, "", "http/80", "tcp/81", "x/82", "udp/83")
	ingress := func(protocol string, number uint32, bind string,
		mode networking.CaptureMode) *networking.IstioIngressListener {
		return &networking.IstioIngressListener{Port: &networking.SidecarPort{Number: number, Protocol: protocol},
			Bind: bind, CaptureMode: mode}
	}
	sidecar := &push.SidecarConfig{Spec: &networking.Sidecar{Ingress: []*networking.IstioIngressListener{
		ingress("TCP", 9090, "127.0.0.8", networking.CaptureMode_DEFAULT),
		ingress("HTTP", 9080, "", networking.CaptureMode_DEFAULT),
		ingress("HTTP", 9070, "", networking.CaptureMode_NONE),
	}}}
	always := []string{
		"  port 15006 -> BlackHoleCluster",
		"  http -> route InboundPassthroughCluster",
		"  all-> InboundPassthroughCluster",
	}
	tests := []struct {
		name         string
		interception push.Interception
		address      string
		service      *registry.Service
		sidecar      *push.SidecarConfig
		want         []string
	}{
		{name: "a chain for each port", address: "10.0.0.9", service: self, want: append(append([]string{"virtualInbound bound captures"}, always...),
			"  port 8080 -> route inbound|8080||",
			"  port 8081 -> inbound|8081||",
			"  port 8082 http -> route inbound|8082||",
			"  port 8082 -> inbound|8082||")},
		{name: "no service", address: "10.0.0.9", service: gentest.Service("none", 1, ""), want: append([]string{"virtualInbound bound captures"}, always...)},
		{name: "both families", address: "2001:db8::1", service: gentest.Service("none", 1, ""), want: append([]string{"virtualInbound and :: bound captures"}, always...)},
		{name: "the listener's own port is no service", address: "10.0.0.9", service: gentest.Service("self", 1, "", "http/7006"),
			want: append([]string{"virtualInbound bound captures"}, always...)},
		{name: "nothing is redirected: the workload listens itself", interception: push.None, address: "127.0.0.9", service: self},
		{name: "ingress listeners stand instead of services", address: "10.0.0.9", service: self, sidecar: sidecar,
			want: append(append([]string{"10.0.0.9_9070 bound", "  all-> route inbound|9070||",
				"virtualInbound bound captures"}, always...),
				"  port 9080 -> route inbound|9080||", "  port 9090 -> inbound|9090||")},
		{name: "where redirected connections arrive", address: "10.0.0.9", service: self, sidecar: &push.SidecarConfig{Spec: &networking.Sidecar{Ingress: []*networking.IstioIngressListener{
			ingress("TCP", 15006, "", networking.CaptureMode_NONE),
			ingress("TCP", 15001, "127.0.0.1", networking.CaptureMode_NONE),
			ingress("TCP", 15001, "10.0.0.8", networking.CaptureMode_NONE),
		}}}, want: append([]string{"10.0.0.8_15001 bound", "  all-> inbound|15001||", "virtualInbound bound captures"}, always...)},
		{name: "ingress listeners without redirection", interception: push.None, address: "127.0.0.9", service: self, sidecar: sidecar,
			want: []string{"127.0.0.8_9090 bound", "  all-> inbound|9090||", "127.0.0.9_9070 bound",
				"  all-> route inbound|9070||", "127.0.0.9_9080 bound", "  all-> route inbound|9080||"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sc := gentest.Scope()
			sc.Interception = tt.interception
			sc.Own = testOwn(tt.address, tt.service)
			sc.DualStack = strings.HasPrefix(tt.address, "2001:")
			sc.Sidecar = tt.sidecar
			got := inboundLines(t, sc)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
		})
	}
}

// Of several services with one target port the oldest decides what it speaks.
func TestInboundOldestService(t *testing.T) {
	t.Parallel()
	a, b := gentest.Service("a", 1, "", "http/80"), gentest.Service("b", 9, "", "tcp/80")
	own := testOwn("10.0.0.9", a)
	var both []push.Inbound
	for _, s := range []*registry.Service{a, b} {
		both = append(both, push.Inbound{Service: s, Port: s.Ports[0], TargetPort: 8080})
	}
	own = &push.Own{Addresses: own.Addresses, Inbound: testInbound(both)}
	sc := gentest.Scope()
	sc.Own = own
	if got := inboundLines(t, sc); !slices.Contains(got, "  port 8080 -> inbound|8080||") || len(got) != 5 {
		t.Errorf("got %q, want one port of TCP", got)
	}
}

// Ports whose protocol is known are not inspected: the inspector would keep a server that speaks
// first waiting.
func TestInboundInspection(t *testing.T) {
	t.Parallel()
	sc := gentest.Scope()
	sc.Own = testOwn("10.0.0.9", gentest.Service("self", 1, "", "http/80", "mysql/81", "x/82"))
	for _, l := range decodeListeners(t, New().Set(resource.ListenerType, sc)) {
		if l.Name != "virtualInbound" {
			continue
		}
		for _, f := range l.ListenerFilters {
			if f.Name != "envoy.filters.listener.http_inspector" {
				continue
			}
			var got []int32
			for _, r := range f.FilterDisabled.GetOrMatch().GetRules() {
				got = append(got, r.GetDestinationPortRange().GetStart())
			}
			if d := cmp.Diff([]int32{15006, 8080, 8081}, got); d != "" {
				t.Errorf("ports without inspection (-want +got):\n%s", d)
			}
			return
		}
	}
	t.Error("virtualInbound has no HTTP inspector")
}

// Listeners are of the families of the proxy's addresses, whatever its type.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, kind := range []push.NodeType{push.Sidecar, push.Router} {
		for addresses, want := range map[string]envoy.Families{
			"10.0.0.1": envoy.OnlyV4, "127.0.0.2": envoy.OnlyV4, "10.0.0.1 fe80::1": envoy.OnlyV4, "10.0.0.1 ::1": envoy.OnlyV4,
			"10.0.0.1 ::ffff:10.0.0.1": envoy.OnlyV4, "10.0.0.1 2001:db8::1": envoy.DualStack, "2001:db8::1 10.0.0.1": envoy.DualStack,
			"2001:db8::1": envoy.OnlyV6, "::1": envoy.OnlyV6,
		} {
			c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}})
			n := testNode(kind, "shop")
			var ips intern.Lists[netip.Addr]
			var list []netip.Addr
			for _, a := range strings.Fields(addresses) {
				list = append(list, netip.MustParseAddr(a))
			}
			n.IPs = ips.Of(list)
			sc := c.Scope(c.Classify(n))
			got := envoy.FamiliesOf(sc)
			if got != want {
				t.Errorf("%v %s: got %d, want %d", kind, addresses, got, want)
			}
			if v6 := got.Wildcard().Is6() && got.Loopback().Is6(); v6 != (want == envoy.OnlyV6) {
				t.Errorf("%v %s: listens on %s and %s", kind, addresses, got.Wildcard(), got.Loopback())
			}
		}
	}
}

// inboundLines are planLines of the workload's side alone.
func inboundLines(t *testing.T, sc *push.Scope) []string {
	t.Helper()
	var out []string
	for _, l := range decodeListeners(t, resource.Set{Shared: New().Set(resource.ListenerType, sc).Own}) {
		out = append(out, listenerLines(t, l)...)
	}
	return out
}
