package config

import (
	"strings"
	"testing"
)

// The number of an enum's value is refused, with line and field.
func TestEnumNumber(t *testing.T) {
	t.Parallel()
	r := Parse("a.yaml", []byte("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: a}\n"+
		"spec: {mtls: {mode: 3}}\n"))
	if len(r.Objects) != 0 || len(r.Problems) != 1 || r.Problems[0].Line != 4 ||
		r.Problems[0].Field != "spec.mtls.mode" {
		t.Errorf("got %v, want it refused in line 4", r.Problems)
	}
}

// The hint about a wrong value has no value that is refused.
func TestEnumHint(t *testing.T) {
	t.Parallel()
	r := Parse("a.yaml", []byte("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a}\n"+
		"spec: {configPatches: [{applyTo: CLUSTERS, patch: {operation: X}}]}\n"))
	if len(r.Problems) != 2 {
		t.Fatalf("got %v, want two problems", r.Problems)
	}
	for _, p := range r.Problems {
		if !strings.Contains(p.Text, "want one of ") || strings.Contains(p.Text, "INVALID") ||
			strings.Contains(p.Text, "BOOTSTRAP") {
			t.Errorf("got %s", p.Text)
		}
	}
}
