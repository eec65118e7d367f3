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

// A registry that is named anew counts where it did until the new one is known: no other one takes its place.
func TestRegistryRenamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registries := func(names ...string) (s push.Sources, says []*scripted[registry.Instances]) {
			for _, name := range names {
				says = append(says, newScripted[registry.Instances](name))
				s.Instances = append(s.Instances, says[len(says)-1])
			}
			return s, says
		}
		full := func(namespace string) feed.Batch[registry.Instances] {
			return feed.Batch[registry.Instances]{Full: true, Updates: []feed.Update[registry.Instances]{{Group: "web", Items: []registry.Instances{
				{Service: &registry.Service{Key: registry.Key{Host: "web", Namespace: namespace}}}}}}}
		}
		first, says := registries("a", "b")
		var last *push.Context
		a := push.NewAssembler(push.AssemblerConfig{Sources: first, Mesh: testMesh(), Publish: func(c *push.Context, _ push.Changes) { last = c }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		has := func(what, want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			for k := range last.Inputs().Services.All() {
				if k.Namespace != want {
					t.Errorf("%s it is %s, want %s", what, k.Namespace, want)
				}
			}
		}
		says[0].say <- full("of-a")
		says[1].say <- full("of-b")
		has("at first", "of-a")
		next, says := registries("new", "b")
		next.Instances[1] = first.Instances[1]
		if err := a.Arrange(ctx, next); err != nil {
			t.Fatal(err)
		}
		has("before the new one is known", "of-a")
		says[0].say <- full("of-new")
		has("then", "of-new")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
