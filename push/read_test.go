package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
)

// read makes the inputs of a file named mesh.yaml. Nothing may be wrong with it by itself.
func read(t *testing.T, documents ...string) push.Inputs {
	t.Helper()
	r := config.Parse("mesh.yaml", []byte(strings.Join(documents, "")))
	for _, p := range r.Problems {
		t.Errorf("%v", p)
	}
	return goldentest.Inputs(t, r.Objects, true)
}
