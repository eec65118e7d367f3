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

// names are those of the sources, with the deriver's before those of services: it tells of declarations. After them all is what it
// makes of what other control planes' registries know.
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
	if c.Derive != nil {
		instances = append(instances, c.relays())
	}
	return objects, instances
}

// relays is what the services count as from that are Relayed. No source is called so.
func (c *AssemblerConfig) relays() string { return c.Derive.Name() + " relayed" }

// derives says whether something is said by the deriver.
func (c *AssemblerConfig) derives(source string) bool {
	return c.Derive != nil && (source == c.Derive.Name() || source == c.relays())
}

// Arrange replaces the sources. One that is the same as before goes on. One that is another under a name that there was
// takes its place: what was said under the name stays until the new one has said everything. Objects of sources that are not
// named any more stay for as long as they may stand in another one (see Held); services of theirs, and those that a new one under a
// name does not say any more, until all of those that came was seen, and all that are waited for have said everything. It waits until
// the assembler has taken it in, which does so while it runs.
// Errors: those of Check, and then nothing is replaced; ctx's.
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
// the place of another one leaves no moment without either. anew are the names under which there is another one now, and came those
// under which a source of services began.
func (a *Assembler) arrange(ctx context.Context, s Sources, anew, came []string, now time.Time) {
	a.mu.Lock()
	a.cfg.Sources = s
	a.mu.Unlock()
	objects, instances := a.cfg.names(s)
	a.left = slices.DeleteFunc(a.left, func(name string) bool { return slices.Contains(objects, name) || slices.Contains(instances, name) })
	a.left = append(a.left, a.objects.Besides(objects)...)
	a.moves.arrange(instances, came, now)
	a.rankInstances(a.instances.With(instances), now)
	a.mu.Lock()
	a.instances.Anew(came)
	a.mu.Unlock()
	if a.own != nil {
		a.own.arrange(objects, anew, now)
	}
	a.mu.Lock()
	touched := a.use.arrange(objects, anew, now)
	a.mu.Unlock()
	a.leaving = true
	a.updateObjects(ctx, touched, edits{}, now, now)
	a.settle(ctx, now)
}

// arrived lets go of what went with sources that were taken out of the list, once no part of that change is on its way any more: it
// may have been moved to where nobody has looked yet. It returns after how long that is; zero: it is so.
func (a *Assembler) arrived(ctx context.Context, now time.Time) time.Duration {
	if a.use.amid.IsZero() {
		return 0
	}
	if wait := a.use.amid.Sub(now); wait > 0 {
		return wait
	}
	a.use.amid = time.Time{}
	if a.own != nil {
		a.own.objects.amid = time.Time{}
	}
	if a.holds() {
		a.updateObjects(ctx, nil, edits{}, now, now)
	}
	return 0
}

// settle drops the services of sources that leave, once all of those that came was seen, and all that are waited for have said
// everything.
func (a *Assembler) settle(ctx context.Context, now time.Time) {
	a.settleOwn()
	defer a.standMoving()
	if !a.leaving || len(a.moves.unseen)+len(a.unread()) > 0 {
		return
	}
	a.leaving = false
	_, instances := a.cfg.names(a.cfg.Sources)
	for _, name := range a.instances.Besides(instances) {
		if a.moves.source(name) == name {
			a.left = append(a.left, name)
		}
	}
	if a.own != nil {
		a.own.stays(instances)
	}
	a.rankInstances(instances, now)
	a.mu.Lock()
	a.moves.settle()
	a.mu.Unlock()
	a.updateObjects(ctx, nil, edits{}, now, now)
}

// tellLeft tells of the sources that left, once those of them that were stopped have ended: what of theirs is in use is held.
func (a *Assembler) tellLeft(objects *crew[*config.Object], instances *crew[registry.Instances]) {
	if a.cfg.Left == nil || len(a.left) == 0 {
		return
	}
	names := a.left
	a.left = nil
	var ends []<-chan struct{}
	for _, name := range names {
		for _, stopped := range []map[string]<-chan struct{}{objects.stopped, instances.stopped} {
			if end, ok := stopped[name]; ok {
				ends = append(ends, end)
			}
		}
	}
	objects.group.Go(func() error {
		for _, end := range ends {
			<-end
		}
		a.cfg.Left(names)
		return nil
	})
}

// rankInstances has the sources of these names merged, in their order.
func (a *Assembler) rankInstances(names []string, now time.Time) {
	a.mu.Lock()
	touched := a.instances.Arrange(names)
	a.mu.Unlock()
	a.updateInstances(touched, now, now)
	for _, b := range a.adopts.arrange(names) {
		a.applyInstances(b, now)
	}
}

// unread are the sources that are waited for and have not said everything yet.
func (a *Assembler) unread() []string {
	objects, instances := a.cfg.names(a.cfg.Sources)
	return slices.DeleteFunc(append(a.objects.Waiting(), a.instances.Waiting()...), func(name string) bool {
		return slices.Contains(a.cfg.Sources.Optional, name) || a.cfg.derives(name) ||
			!slices.Contains(objects, name) && !slices.Contains(instances, name) // it leaves
	})
}

// crew are the sources of one kind that run, by their names.
type crew[T any] struct {
	group   *errgroup.Group
	out     chan word[T]
	running map[string]member[T]
	stopped map[string]<-chan struct{} // closed as those end that were stopped, by their names
}

// member is one that runs.
type member[T any] struct {
	source feed.Source[T]
	says   chan feed.Batch[T] // closed when it has ended
	stop   context.CancelFunc
	ended  <-chan struct{}
}

// word is a batch, and where it was said.
type word[T any] struct {
	batch feed.Batch[T]
	said  chan feed.Batch[T]
}

func newCrew[T any](group *errgroup.Group) *crew[T] {
	return &crew[T]{group: group, out: make(chan word[T]), running: map[string]member[T]{}, stopped: map[string]<-chan struct{}{}}
}

// arrange starts and stops sources until those of the list run. One of a name that there was starts when that has ended, also
// where that was taken out of the list before. It returns the names under which there is another one now, and with those of which
// there was none the names under which one begins.
func (c *crew[T]) arrange(ctx context.Context, list []feed.Source[T]) (anew, came []string) {
	before := c.running
	c.running = make(map[string]member[T], len(list))
	for _, s := range list {
		name := s.Name()
		old, had := before[name]
		delete(before, name)
		if had && old.source == s {
			c.running[name] = old
			continue
		}
		came = append(came, name)
		if had {
			old.stop()
			c.stopped[name], anew = old.ended, append(anew, name)
		}
		c.running[name] = c.start(ctx, s, c.stopped[name])
		delete(c.stopped, name)
	}
	for name, m := range before {
		m.stop()
		c.stopped[name] = m.ended
	}
	return anew, came
}

// counts says that who said something still runs: what one says at its end is not the word of another one that has taken its place.
func (c *crew[T]) counts(w word[T]) bool {
	m, runs := c.running[w.batch.Source]
	return runs && m.says == w.said
}

// start runs a source, once after is closed; nil: at once.
func (c *crew[T]) start(ctx context.Context, s feed.Source[T], after <-chan struct{}) member[T] {
	ctx, stop := context.WithCancel(ctx)
	ended, says := make(chan struct{}), make(chan feed.Batch[T])
	c.group.Go(func() error {
		defer close(ended)
		defer stop()
		defer close(says)
		if after != nil {
			<-after
		}
		return named(s.Name(), s.Run(ctx, says))
	})
	c.group.Go(func() error {
		for b := range says {
			select {
			case c.out <- word[T]{b, says}:
			case <-ctx.Done():
			}
		}
		return nil
	})
	return member[T]{source: s, says: says, stop: stop, ended: ended}
}
