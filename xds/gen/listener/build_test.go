package listener

import (
	"slices"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// A filter chain that Envoy would refuse closes its connections, and the others stay. What it would
// have named is not waited for.
func TestRefusedChain(t *testing.T) {
	t.Parallel()
	chain := func(name string, port uint32) chainSpec {
		return chainSpec{name: name, match: chainMatch{port: port}, tcp: tcpSpec{cluster: name, statPrefix: name}}
	}
	requests := chain("requests", 83)
	requests.http = httpSpec{statPrefix: "x", route: "routes"}
	refusedFilter := chain("refused", 82)
	refusedFilter.tcp.lifetime = durationpb.New(time.Nanosecond)
	cluster := func(name string) resource.Ref { return resource.Ref{TypeURL: resource.ClusterType, Name: name} }
	base := newListenerBase(New(nil, destination.NewIndexes()).settingsOf(gentest.Scope()))
	for name, tt := range map[string]struct {
		chains []chainSpec
		left   []string // the names of chains that are not refused, or closed
		want   []resource.Ref
	}{
		"all is well": {[]chainSpec{chain("a", 80), chain("b", 81), requests}, []string{"a", "b", "requests"},
			[]resource.Ref{cluster("a"), cluster("b"), {TypeURL: resource.RouteType, Name: "routes"}}},
		"a refused filter": {[]chainSpec{chain("a", 80), refusedFilter}, []string{"a", "refused"},
			[]resource.Ref{cluster("a"), cluster(envoy.BlackHole)}},
		"a refused match": {[]chainSpec{chain("a", 80), chain("b", 70000)}, []string{"a"}, []resource.Ref{cluster("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := newChainSet(&chainLists{})
			set.specs = tt.chains
			made := buildListener(listenerSpec{base: base, name: "l",
				at: envoy.Address{IP: envoy.OnlyV4.Loopback(), Port: 80}, chains: set.list()})
			if d := cmp.Diff(tt.want, made.Resource.Refs); d != "" {
				t.Errorf("references (-want +got):\n%s", d)
			}
			var l listenerv3.Listener
			if err := proto.Unmarshal(made.Resource.Body(), &l); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, c := range l.FilterChains {
				left = append(left, c.Name)
			}
			refused := name != "all is well"
			if err := gentest.ValidateAll(&l); err != nil || !slices.Equal(left, tt.left) || refused != (len(made.Problems) == 1) {
				t.Errorf("got %v, %v, problems %v; want %v", l.FilterChains, err, made.Problems, tt.left)
			}
		})
	}
}
