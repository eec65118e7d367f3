package gen_test

import (
	"testing"
	"unique"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
	"github.com/ashore-mesh/ashore/xds/resource"
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

// What the settings of a proxy, its group and the mesh say to its agent is in one resource.
func TestAgentConfig(t *testing.T) {
	t.Parallel()
	merged := &meshconfig.MeshConfig{}
	unmerged := &meshconfig.MeshConfig{EnablePrometheusMerge: wrapperspb.Bool(false)}
	config := &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(3), ProxyMetadata: map[string]string{"A": "b"}}
	for name, tc := range map[string]struct {
		mesh   *meshconfig.MeshConfig
		facets push.Facets
		want   *meshconfig.ProxyConfig
	}{
		"settings": {merged, push.Facets{AgentConfig: config}, config},
		"metrics": {merged, push.Facets{AgentConfig: config, Application: "9100/metrics"}, &meshconfig.ProxyConfig{
			Concurrency:   wrapperspb.Int32(3),
			ProxyMetadata: map[string]string{"A": "b", resource.ApplicationMetrics: "9100/metrics"}}},
		"no merging": {unmerged, push.Facets{AgentConfig: config, Application: "9100/metrics"}, config},
		"a group":    {merged, push.Facets{Probe: unique.Make("")}, &meshconfig.ProxyConfig{}},
	} {
		sc := &push.Scope{Facets: tc.facets, Mesh: &push.Mesh{Config: tc.mesh}}
		r := gen.New().Set(agent.ProxyConfigType, sc).Get(agent.ProxyConfigName)
		var got meshconfig.ProxyConfig
		if err := r.Any().UnmarshalTo(&got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, &got, tc.want)
		}
	}
}
