package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Sources are what an Assembler merges. Names are unique.
type Sources struct {
	// Objects are the sources of configuration, the deciding one first.
	Objects []config.Source
	// Instances are the sources of services, the deciding one first; those that are made of configuration come before
	// them.
	Instances []feed.Source[registry.Instances]
	// Optional names sources whose first complete state the first build does not wait for.
	Optional []string
}

// Check says which names are there more than once: what sources say is told apart by them. Nil: none.
func (s Sources) Check() error {
	var errs []error
	seen := map[string]int{}
	tell := func(name string) {
		if seen[name]++; seen[name] == 2 {
			errs = append(errs, fmt.Errorf("two sources are called %s: remove one of them", name))
		}
	}
	for _, o := range s.Objects {
		tell(o.Name())
	}
	for _, i := range s.Instances {
		tell(i.Name())
	}
	return errors.Join(errs...)
}

// names are those of the sources, with the deriver's before those of services.
func (c *AssemblerConfig) names(s Sources) (objects, instances []string) {
	for _, o := range s.Objects {
		objects = append(objects, o.Name())
	}
	if c.Derive != nil {
		instances = append(instances, c.Derive.Name())
	}
	for _, i := range s.Instances {
		instances = append(instances, i.Name())
	}
	return objects, instances
}

// Arrange replaces the sources. One that is the same as before goes on. One that is another under a name that there was
// takes its place: what was said under the name stays until the new one has said everything. What sources said that are
// not named any more is gone once all that are have said everything, those that nothing waits for aside. It waits until the assembler
// has taken it in, which does so while it runs. Errors: those of Check, and then nothing is replaced; ctx's.
func (a *Assembler) Arrange(ctx context.Context, s Sources) error {
	if err := s.Check(); err != nil {
		return err
	}
	select {
	case a.arranged <- s:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrange merges what the sources say that there are now. What leaves stays until what came is known: a folder that takes
// the place of another one leaves no moment without either.
func (a *Assembler) arrange(ctx context.Context, s Sources, now time.Time) {
	a.mu.Lock()
	a.cfg.Sources = s
	a.mu.Unlock()
	a.leaving = true
	objects, instances := a.cfg.names(s)
	a.left = slices.DeleteFunc(a.left, func(name string) bool { return slices.Contains(objects, name) || slices.Contains(instances, name) })
	a.rank(ctx, a.objects.With(objects), a.instances.With(instances), now)
	a.settle(ctx, now)
}

// settle drops the sources that leave, once all that came have said everything.
func (a *Assembler) settle(ctx context.Context, now time.Time) {
	if !a.leaving || len(a.unread()) > 0 {
		return
	}
	a.leaving, a.leaves = false, true
	objects, instances := a.cfg.names(a.cfg.Sources)
	a.left = append(a.left, slices.Concat(a.objects.With(objects)[len(objects):], a.instances.With(instances)[len(instances):])...)
	a.rank(ctx, objects, instances, now)
	a.leaves = false
}

// takeBefore takes in what sources said before the start that there are not any more.
func (a *Assembler) takeBefore(ctx context.Context, now time.Time) {
	a.leaving = len(a.cfg.Before) > 0
	for _, b := range a.cfg.Before {
		a.takeObjects(ctx, b, now)
	}
	a.cfg.Before = nil
}

// tellLeft tells of the sources that left, once nothing that one of them said is in use and those that were stopped have
// ended.
func (a *Assembler) tellLeft(objects *crew[*config.Object], instances *crew[registry.Instances]) {
	if a.cfg.Left == nil || a.leaving || len(a.left) == 0 || len(a.held) > 0 {
		return
	}
	names, stopped := a.left, slices.Concat(objects.stopped, instances.stopped)
	a.left, objects.stopped, instances.stopped = nil, nil, nil
	objects.group.Go(func() error {
		for _, ended := range stopped {
			<-ended
		}
		a.cfg.Left(names)
		return nil
	})
}

// rank has the sources of these names merged, in their order.
func (a *Assembler) rank(ctx context.Context, objects, instances []string, now time.Time) {
	a.mu.Lock()
	touchedObjects, touchedInstances := a.objects.Arrange(objects), a.instances.Arrange(instances)
	a.mu.Unlock()
	a.updateInstances(touchedInstances, now, now)
	for _, b := range a.adopts.arrange(instances) {
		a.applyInstances(b, now)
	}
	a.updateObjects(ctx, touchedObjects, nil, now, now)
}

// unread are the sources that are waited for and have not said everything yet.
func (a *Assembler) unread() []string {
	objects, instances := a.cfg.names(a.cfg.Sources)
	return slices.DeleteFunc(append(a.objects.Waiting(), a.instances.Waiting()...), func(name string) bool {
		return slices.Contains(a.cfg.Sources.Optional, name) || a.cfg.Derive != nil && name == a.cfg.Derive.Name() ||
			!slices.Contains(objects, name) && !slices.Contains(instances, name) // it leaves
	})
}

// crew are the sources of one kind that run, by their names.
type crew[T any] struct {
	group   *errgroup.Group
	out     chan feed.Batch[T]
	running map[string]member[T]
	stopped []<-chan struct{} // closed as those end that were stopped
}

// member is one that runs.
type member[T any] struct {
	source feed.Source[T]
	stop   context.CancelFunc
	ended  chan struct{}
}

func newCrew[T any](group *errgroup.Group) *crew[T] {
	return &crew[T]{group: group, out: make(chan feed.Batch[T]), running: map[string]member[T]{}}
}

// arrange starts and stops sources until those of the list run. One that takes the place of another starts when that has
// ended.
func (c *crew[T]) arrange(ctx context.Context, list []feed.Source[T]) {
	before := c.running
	c.running = make(map[string]member[T], len(list))
	for _, s := range list {
		old, had := before[s.Name()]
		delete(before, s.Name())
		if had && old.source == s {
			c.running[s.Name()] = old
			continue
		}
		if had {
			old.stop()
		}
		c.running[s.Name()] = c.start(ctx, s, old.ended)
	}
	for _, m := range before {
		m.stop()
		c.stopped = append(c.stopped, m.ended)
	}
}

// start runs a source, once after is closed; nil: at once.
func (c *crew[T]) start(ctx context.Context, s feed.Source[T], after <-chan struct{}) member[T] {
	ctx, stop := context.WithCancel(ctx)
	m := member[T]{source: s, stop: stop, ended: make(chan struct{})}
	c.group.Go(func() error {
		defer close(m.ended)
		defer stop()
		if after != nil {
			<-after
		}
		return named(s.Name(), s.Run(ctx, c.out))
	})
	return m
}
