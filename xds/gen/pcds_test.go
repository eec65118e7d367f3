package gen_test

import (
	"slices"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
)

// Agents are sent the roots, in one resource, and anew only when those change.
func TestTrustBundle(t *testing.T) {
	t.Parallel()
	g := gen.New()
	if n := g.Set(agent.ProxyConfigType, &push.Scope{}).Len(); n != 0 {
		t.Errorf("%d resources without an authority", n)
	}
	one := g.Set(agent.ProxyConfigType, &push.Scope{Trust: &push.Trust{ID: "a", Roots: []string{"one", "two"}}})
	r := one.Get(agent.ProxyConfigName)
	if one.Len() != 1 || r == nil {
		t.Fatalf("%d resources", one.Len())
	}
	var got meshconfig.ProxyConfig
	if err := r.Any().UnmarshalTo(&got); err != nil || !slices.Equal(got.CaCertificatesPem, []string{"one", "two"}) {
		t.Errorf("roots %v, %v", got.CaCertificatesPem, err)
	}
	revoked := g.Set(agent.ProxyConfigType, &push.Scope{Trust: &push.Trust{ID: "a", Roots: []string{"one", "two"},
		Identities: []string{"x"}}})
	if revoked != one {
		t.Error("a revocation sends the roots anew")
	}
	if g.Set(agent.ProxyConfigType, &push.Scope{Trust: &push.Trust{ID: "b", Roots: []string{"two"}}}) == one {
		t.Error("other roots are the same resource")
	}
}
