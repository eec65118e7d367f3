package config

import (
	"strings"
	"testing"

	security "istio.io/api/security/v1beta1"
)

// The number of an enum's value was read once: what was accepted so stays in use, and is written
// by its name.
func TestNumberKept(t *testing.T) {
	t.Parallel()
	text := []byte("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: a}\nspec: {mtls: {mode: 3}}\n")
	if r := Parse("a.yaml", text); len(r.Objects) != 0 || len(r.Problems) != 1 || r.Problems[0].Line != 4 ||
		r.Problems[0].Field != "spec.mtls.mode" {
		t.Errorf("got %v, want it refused in line 4", r.Problems)
	}
	r := ParseKept("a.yaml", text)
	if len(r.Objects) != 1 || r.Objects[0].Spec.(*security.PeerAuthentication).GetMtls().GetMode() != security.PeerAuthentication_MutualTLS_STRICT {
		t.Fatalf("kept: got %v, %v, want STRICT", r.Objects, r.Problems)
	}
	encoded, err := Encode(r.Objects)
	if err != nil || !strings.Contains(string(encoded), "mode: STRICT") || len(Parse("a.yaml", encoded).Objects) != 1 {
		t.Errorf("written as\n%s, %v", encoded, err)
	}
}
