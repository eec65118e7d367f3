package main

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// The last line of a write counts its changes, also if there are none.
func TestWrittenSummary(t *testing.T) {
	t.Parallel()
	of := func(actions ...string) (out []admin.ObjectChange) {
		for _, a := range actions {
			out = append(out, admin.ObjectChange{Ref: admin.Ref{Kind: "Sidecar", Namespace: "shop", Name: "a"},
				Action: a})
		}
		return out
	}
	for want, changes := range map[string][]admin.ObjectChange{
		"nothing to change at revision 2\n":                           nil,
		"Sidecar shop/a not there\nnothing to change at revision 2\n": of(admin.Unchanged, admin.Missing),
		"revision 2: 1 deleted, 1 not there\n":                        of(admin.Missing, admin.Deleted),
	} {
		if got := writtenText(admin.Written{Revision: "2", Changes: changes}); !strings.HasSuffix(got, want) || len(changes) > 0 &&
			!strings.Contains(got, "Sidecar shop/a not there\n") {
			t.Errorf("got %q, want %q in the end", got, want)
		}
	}
}
