package push_test

import (
	"testing"
	"unique"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
)

// Proxies of groups with different probes have different facets, and those with equal probes have
// equal ones.
func TestProbeTellsApart(t *testing.T) {
	t.Parallel()
	c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: &mesh.MeshConfig{}, Domain: "cluster.local"}})
	facets := func(probe unique.Handle[string]) push.Facets {
		return c.Classify(push.Node{Type: push.Router, Namespace: "shop", Probe: probe})
	}
	none, empty, some := facets(unique.Handle[string]{}), facets(unique.Make("")), facets(unique.Make("x"))
	if none == empty || empty == some || some != facets(unique.Make("x")) {
		t.Errorf("of no group %v, of one without a probe %v, with one %v", none.Probe, empty.Probe, some.Probe)
	}
	if got := c.Scope(some).Probe; got != some.Probe {
		t.Errorf("the scope has %v", got)
	}
}
