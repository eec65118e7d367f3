package listener

import (
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// A listener of which nothing is left closes its connections, and one whose place does not exist is
// left out.
func TestRefusedListener(t *testing.T) {
	t.Parallel()
	chains := &chainLists{}
	base := newListenerBase(settingsOf(gentest.Scope()))
	set := newChainSet(chains)
	set.specs = []chainSpec{{name: "x", match: chainMatch{port: 70000}, tcp: tcpSpec{cluster: "c", statPrefix: "c"}}}
	spec := listenerSpec{base: base, name: "l", at: envoy.Address{IP: envoy.OnlyV4.Loopback(), Port: 80}, chains: set.list()}
	made := buildListener(spec)
	var l listenerv3.Listener
	if err := proto.Unmarshal(made.resource.Body(), &l); err != nil {
		t.Fatal(err)
	}
	if err := gentest.ValidateAll(&l); err != nil || len(l.FilterChains) != 1 || l.FilterChains[0].Name != envoy.BlackHole {
		t.Errorf("got %v, %v, want one chain that closes", l.FilterChains, err)
	}
	if len(made.refused) != 2 {
		t.Errorf("problems: got %v, want the chain and the listener", made.refused)
	}
	spec.at.Port = 70000
	if made := buildListener(spec); made.resource != nil || len(made.refused) != 2 {
		t.Errorf("got %v, %v, want no listener", made.resource, made.refused)
	}
}

// A listener refers to what is in it: what a closed chain would have named is not waited for.
func TestRefusedRefs(t *testing.T) {
	t.Parallel()
	chain := func(name string, port uint32) chainSpec {
		return chainSpec{name: name, match: chainMatch{port: port}, tcp: tcpSpec{cluster: name, statPrefix: name}}
	}
	unbuildable := chain("unbuildable", 82)
	unbuildable.tcp.lifetime = durationpb.New(time.Nanosecond)
	requests := chain("requests", 83)
	requests.http = httpSpec{statPrefix: "x", route: "routes"}
	unmatched := chain("unmatched", 70000)
	named := func(names ...string) (out []resource.Ref) {
		for _, n := range names {
			out = append(out, resource.Ref{TypeURL: resource.ClusterType, Name: n})
		}
		return out
	}
	base := newListenerBase(settingsOf(gentest.Scope()))
	for name, tt := range map[string]struct {
		chains []chainSpec
		want   []resource.Ref
	}{
		"all is well":      {[]chainSpec{chain("a", 80), chain("b", 81), requests}, append(named("a", "b"), resource.Ref{TypeURL: resource.RouteType, Name: "routes"})},
		"a closed chain":   {[]chainSpec{chain("a", 80), unbuildable}, named("a", envoy.BlackHole)},
		"a chain left out": {[]chainSpec{chain("a", 80), unmatched}, named("a")},
		"closed":           {[]chainSpec{unmatched}, named(envoy.BlackHole)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := newChainSet(&chainLists{})
			set.specs = tt.chains
			made := buildListener(listenerSpec{base: base, name: "l", at: envoy.Address{IP: envoy.OnlyV4.Loopback(), Port: 80},
				chains: set.list()})
			if d := cmp.Diff(tt.want, made.resource.Refs); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
