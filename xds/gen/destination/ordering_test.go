package destination

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// What is known of a place goes before a label that says it.
func TestMismatch(t *testing.T) {
	t.Parallel()
	var labels intern.Lists[push.Label]
	o := &Ordering{
		OrderRule: OrderRule{Setting: &networking.LocalityLoadBalancerSetting{FailoverPriority: []string{registry.NetworkLabel, regionLabel,
			zoneLabel, "rack"}}, Failover: true},
		Client: Client{Locality: registry.ParseLocality("east/a"), network: "n1",
			labels: labels.Of([]push.Label{{Key: "rack", Value: "1"}, {Key: regionLabel, Value: "north"}})},
	}
	for name, c := range map[string]struct {
		ep   registry.Endpoint
		want int
	}{
		"all":         {registry.Endpoint{Network: "n1", Locality: registry.ParseLocality("east/a"), Labels: map[string]string{"rack": "1"}}, 0},
		"rack":        {registry.Endpoint{Network: "n1", Locality: registry.ParseLocality("east/a")}, 1},
		"zone":        {registry.Endpoint{Network: "n1", Locality: registry.ParseLocality("east/b"), Labels: map[string]string{"rack": "1"}}, 2},
		"region":      {registry.Endpoint{Network: "n1", Locality: registry.ParseLocality("north/a"), Labels: map[string]string{"rack": "1"}}, 3},
		"network":     {registry.Endpoint{Network: "n2", Locality: registry.ParseLocality("east/a")}, 4},
		"place label": {registry.Endpoint{Labels: map[string]string{registry.NetworkLabel: "n1", regionLabel: "east", zoneLabel: "a", "rack": "1"}}, 0},
	} {
		if got := o.mismatch(&c.ep); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMatchesLocality(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, locality string
		want              bool
	}{
		{"*", "a/b/c", true}, {"*", "", true}, {"a", "a/b/c", true}, {"a", "b", false}, {"a/*", "a/b", true}, {"a/b", "a/b/c", true},
		{"a/b", "a/c", false}, {"a/b/*", "a/b/c", true}, {"a/b/c", "a/b/d", false}, {"a/b/c", "a/b", false},
	} {
		if got := MatchesLocality(c.pattern, registry.ParseLocality(c.locality)); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.locality, got, c.want)
		}
	}
}
