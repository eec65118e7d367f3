package gen

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Where nothing is intercepted, the proxy listens for applications on loopback, takes none of the
// workload's ports for outgoing connections, and warns of those that the application has itself.
func TestListenersOfPortStates(t *testing.T) {
	t.Parallel()
	self := gentest.Service("self", 1, "", "http/80", "tcp/81", "tcp/82", "udp/83")
	sc := gentest.Scope(gentest.Egress(nil, gentest.Service("other", 1, "", "http/8080", "http/8090")))
	sc.Interception, sc.Own = push.None, testOwn("10.0.0.9", self)
	items := slices.Clone(sc.Own.Inbound.Items())
	for i, state := range []registry.PortState{registry.PortLoopback, registry.PortClosed, registry.PortServed,
		registry.PortServed} {
		items[i].State, items[i].Mutual = state, true
	}
	sc.Own.Inbound = testInbound(items)
	got := inboundLines(t, sc)
	want := []string{"10.0.0.9_8080 bound", "  all-> route inbound|8080||"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("inbound: -want +got:\n%s", d)
	}
	var out []string
	for _, r := range New().Set(resource.ListenerType, sc).Shared.Items() {
		out = append(out, r.Name)
	}
	if want := []string{"127.0.0.1_8090"}; !slices.Equal(out, want) {
		t.Errorf("outbound: got %v, want %v", out, want)
	}
	if got := workload.BypassOf(sc, push.PeerModes{Default: push.PeerStrict}); got.Ports != "8082" {
		t.Errorf("the application itself has %q, want 8082", got.Ports)
	}
}
