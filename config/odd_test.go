package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Specifications that an operator may write by mistake, one a line: wrong types and names, numbers
// out of range, contradictions, parts that are missing. Those of refused.txt are errors: Istio
// refuses them, Envoy would, or they would have no effect. Those of accepted.txt are odd, and
// nothing more; xds/gen shows them to a real Envoy.
func TestOddSpecifications(t *testing.T) {
	t.Parallel()
	for file, refused := range map[string]bool{"refused.txt": true, "accepted.txt": false} {
		text, err := os.ReadFile("testdata/odd/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			kind, spec, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			info, ok := Info(Kind(kind))
			if !ok {
				t.Fatalf("%s: unknown kind %q", file, kind)
			}
			r := Parse("odd.yaml", []byte("apiVersion: "+info.APIVersion()+"\nkind: "+kind+"\nmetadata: {name: odd, namespace: shop}\nspec: "+spec+"\n"))
			i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Severity == feed.Error })
			switch {
			case refused && (i < 0 || len(r.Objects) > 0):
				t.Errorf("accepted: %s %s", kind, spec)
			case !refused && i >= 0:
				t.Errorf("refused: %s %s: %v", kind, spec, r.Problems[i])
			}
		}
	}
}
