package config

import "testing"

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
