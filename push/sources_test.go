package push_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// slow is a source that takes a while to end.
type slow struct {
	name    string
	running *int // of this name, now
	most    *int // at once
}

func (s slow) Name() string { return s.name }

func (s slow) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	*s.running++
	*s.most = max(*s.most, *s.running)
	select {
	case out <- feed.Batch[*config.Object]{Source: s.name, Full: true}:
	case <-ctx.Done():
	}
	<-ctx.Done()
	time.Sleep(5 * time.Second)
	*s.running--
	return nil
}

// A source that is taken out of the list, and put back before it has ended, runs once: the new one waits for the old one.
func TestSourcePutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most int
		sources := func() push.Sources { return push.Sources{Objects: []config.Source{&slow{"a", &running, &most}}} }
		a := push.NewAssembler(push.AssemblerConfig{Sources: sources(), Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		for range 3 {
			for _, s := range []push.Sources{{}, sources()} {
				if err := a.Arrange(ctx, s); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if running != 1 || most != 1 {
			t.Errorf("%d run, at most %d did at once, want 1 and 1", running, most)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
