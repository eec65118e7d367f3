package gen_test

import (
	"fmt"
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

// What a group's annotations and the mesh say about statistics and metrics is in the same resource.
func TestGroupProxyConfig(t *testing.T) {
	t.Parallel()
	text := func(c *meshconfig.ProxyConfig) unique.Handle[string] { return unique.Make(string(resource.Encode(c))) }
	stats := func(prefix string) *meshconfig.ProxyConfig_ProxyStatsMatcher {
		return &meshconfig.ProxyConfig_ProxyStatsMatcher{InclusionPrefixes: []string{prefix}}
	}
	group := text(&meshconfig.ProxyConfig{ProxyStatsMatcher: stats("group."),
		ProxyMetadata: map[string]string{resource.ApplicationMetrics: "9100/metrics"}})
	for name, tc := range map[string]struct {
		mesh       *meshconfig.MeshConfig
		stats, app string
	}{
		"group": {&meshconfig.MeshConfig{}, "[group.]", "9100/metrics"},
		"mesh": {&meshconfig.MeshConfig{DefaultConfig: &meshconfig.ProxyConfig{ProxyStatsMatcher: stats("mesh.")}},
			"[group. mesh.]", "9100/metrics"},
		"no merging": {&meshconfig.MeshConfig{EnablePrometheusMerge: wrapperspb.Bool(false)}, "[group.]", ""},
	} {
		r := gen.New().Set(agent.ProxyConfigType, &push.Scope{Facets: push.Facets{ProxyConfig: group},
			Mesh: &push.Mesh{Config: tc.mesh}}).Get(agent.ProxyConfigName)
		var got meshconfig.ProxyConfig
		if err := r.Any().UnmarshalTo(&got); err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(got.ProxyStatsMatcher.InclusionPrefixes); s != tc.stats || got.ProxyMetadata[resource.ApplicationMetrics] != tc.app {
			t.Errorf("%s: got %s and %v", name, s, got.ProxyMetadata)
		}
	}
}
