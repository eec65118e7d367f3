package agent

import (
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
)

// What an authority answers is an identity whose parts fit, or an error; a trust bundle that is
// taken has roots, and authorities alone.
func FuzzAnswer(f *testing.F) {
	m := newMesh(f, "cluster.local")
	key := ca.NewKey()
	chain := m.issue(f, web(), must(newRequest(key, "")), time.Hour)
	f.Add(chain[0], chain[1], chain[2])
	f.Add(chain[0], "", chain[2])
	f.Add(chain[0], chain[1], chain[2]+chain[0])
	f.Add(chain[0][:200], chain[1], chain[2])
	f.Fuzz(func(t *testing.T, leaf, between, roots string) {
		if bundle, err := parseRoots([]string{roots, between}); err == nil {
			for _, c := range bundle.Roots {
				if !c.IsCA {
					t.Fatal("a root that is no authority")
				}
			}
			if len(bundle.Roots) == 0 {
				t.Fatal("an empty bundle")
			}
		}
		id, err := parseAnswer(key, []string{leaf, between, roots})
		if err != nil {
			return
		}
		if id.ID != web() || keyHash(id.Key) != keyHash(key) || id.rooted() != nil {
			t.Fatalf("an identity that does not fit: %v", id.ID)
		}
		if _, err := ca.DecodeCertificates(ca.EncodeCertificates(id.Chain...)); err != nil {
			t.Fatal(err)
		}
	})
}
