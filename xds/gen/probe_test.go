package gen_test

import (
	"testing"
	"unique"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
)

// The workloads of a group are told its probe, also that there is none, and others are told
// nothing.
func TestProbe(t *testing.T) {
	t.Parallel()
	g := gen.New()
	if n := g.Set(agent.ProbeType, &push.Scope{}).Len(); n != 0 {
		t.Errorf("%d resources for a proxy of no group", n)
	}
	for name, want := range map[string]*networking.ReadinessProbe{
		"http": {PeriodSeconds: 3, HealthCheckMethod: &networking.ReadinessProbe_HttpGet{HttpGet: &networking.HTTPHealthCheckConfig{Path: "/ready", Port: 8080}}},
		"none": {},
	} {
		body, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		scope := func() *push.Scope {
			return &push.Scope{Facets: push.Facets{Probe: unique.Make(string(body))}}
		}
		set := g.Set(agent.ProbeType, scope())
		r := set.Get(agent.ProbeName)
		if set.Len() != 1 || r == nil {
			t.Fatalf("%s: %d resources", name, set.Len())
		}
		var got networking.ReadinessProbe
		if err := r.Any().UnmarshalTo(&got); err != nil || !proto.Equal(&got, want) {
			t.Errorf("%s: got %v, want %v, %v", name, &got, want, err)
		}
		if g.Set(agent.ProbeType, scope()) != set {
			t.Errorf("%s: the same probe is another resource", name)
		}
	}
}
