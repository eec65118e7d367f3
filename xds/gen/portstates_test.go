package gen

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Where nothing is intercepted, the proxy listens for applications on loopback, takes none of the
// workload's ports for outgoing connections, and warns of those that the application has itself.
func TestListenersOfPortStates(t *testing.T) {
	t.Parallel()
	self := testService("self", 1, "", "http/80", "tcp/81", "tcp/82", "udp/83")
	sc := testScope(testEgress(nil, testService("other", 1, "", "http/8080", "http/8090")))
	sc.Interception, sc.Own = push.None, testOwn("10.0.0.9", self)
	items := slices.Clone(sc.Own.Inbound.Items())
	for i, state := range []registry.PortState{registry.PortLoopback, registry.PortClosed, registry.PortServed,
		registry.PortServed} {
		items[i].State, items[i].Mutual = state, true
	}
	sc.Own.Inbound = testInbound(items)
	l := newListeners()
	var got []string
	for _, s := range planInbound(&chainLists{}, inboundListenersIn{base: l.bases.Get(settingsOf(sc)), workload: workloadOf(sc)}) {
		got = append(got, s.lines()...)
	}
	want := []string{"10.0.0.9_8080 bound", "  all-> route inbound|8080||"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("inbound: -want +got:\n%s", d)
	}
	in := workloadOf(sc)
	if ports := in.ports(); len(ports) != 1 || in.target(ports[0]).name() != "127.0.0.1_8080" {
		t.Errorf("inbound connections go to %+v", ports)
	}
	var out []string
	for _, p := range layOutOutbound(outboundInOf(l.groups, sc)).ports {
		out = append(out, p.at.name())
	}
	if want := []string{"127.0.0.1_8090"}; !slices.Equal(out, want) {
		t.Errorf("outbound: got %v, want %v", out, want)
	}
	if got := bypassOf(sc, push.PeerModes{Default: push.PeerStrict}); got.ports != "8082" {
		t.Errorf("the application itself has %q, want 8082", got.ports)
	}
	if got, want := portsOf(sc), "8080 8081 8082"; got != want {
		t.Errorf("the agent checks %q, want %q", got, want)
	}
}

// A port that is not served is no endpoint, and one without interception takes mutual TLS where its
// proxy listens.
func TestEndpointsOfPortStates(t *testing.T) {
	t.Parallel()
	web := testService("web", 1, "", "http/80")
	for state, want := range map[string]struct{ endpoint, mutual bool }{
		"": {true, false}, "80=closed": {false, false}, "80=loopback": {false, false}, "80=listener": {true, true},
		"81=closed": {true, false},
	} {
		ep := registry.Endpoint{Address: "10.0.0.2", TLSMode: "istio", States: registry.PortStates(state),
			Labels: map[string]string{registry.InterceptionLabel: registry.InterceptionNone}}
		s := assignmentSpec{service: web, port: 80, mutual: true,
			endpoints: &registry.EndpointList{Items: []registry.Endpoint{ep}}}
		hosts := s.hosts(reachable)
		if got := len(hosts) == 1; got != want.endpoint || got && hosts[0].mutual != want.mutual {
			t.Errorf("%q: got %+v, want %+v", state, hosts, want)
		}
	}
}
