package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Sources that cannot be told apart are refused by all that take a list of them.
func TestSourcesOfOneName(t *testing.T) {
	t.Parallel()
	object := func(name string) config.Source { return newScripted[*config.Object](name) }
	service := func(name string) feed.Source[registry.Instances] { return newScripted[registry.Instances](name) }
	for name, tc := range map[string]struct {
		sources push.Sources
		want    string
	}{
		"of objects":  {push.Sources{Objects: []config.Source{object("store"), object("files"), object("store")}}, "two sources are called store"},
		"of services": {push.Sources{Instances: []feed.Source[registry.Instances]{service("a"), service("a"), service("a")}}, "two sources are called a"},
		"of both":     {push.Sources{Objects: []config.Source{object("a")}, Instances: []feed.Source[registry.Instances]{service("a")}}, "two sources are called a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := push.NewAssembler(push.AssemblerConfig{Sources: tc.sources, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
			a.Status() // which does not panic
			for what, err := range map[string]error{
				"Check": tc.sources.Check(), "Run": a.Run(t.Context()), "Arrange": push.NewAssembler(push.AssemblerConfig{Mesh: testMesh()}).Arrange(t.Context(), tc.sources),
			} {
				if err == nil || strings.Count(err.Error(), tc.want) != 1 {
					t.Errorf("%s: %v, want %q", what, err, tc.want)
				}
			}
		})
	}
}
