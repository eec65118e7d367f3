package push

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Assembler merges what all sources say into contexts. One goroutine owns it all.
type Assembler struct {
	cfg AssemblerConfig // set once, but for Sources, which mu guards and the loop alone writes

	// the following belong to the goroutine of Run
	inputs  Inputs
	context *Context
	began   time.Time
	dirty   bool      // inputs differ from context
	ready   bool      // every source has delivered its first complete state
	since   time.Time // when the first change that is not built yet was noticed
	built   time.Time // end of the last build
	waits   time.Time // since when the next build waits for the deriver; zero: it does not
	spent   bool      // patience with the deriver is, until it says something
	found   findings
	crosses crossings
	adopts  *adopter
	relays  relays
	use     *objectBook // which objects are in use; its merger is objects, and its objects those of inputs
	own     *own        // what is told others; nil: nothing is
	leaving bool        // sources of services are merged still that are not named any more
	moves   moving      // mu guards its former, which the loop alone writes
	left    []string    // sources that left, and Left was not told of
	rekey   bool        // a RequestAuthentication has changed since keys were asked for
	keyed   keyState    // how far the keys of the first build are

	arranged chan Sources  // what Arrange asks for
	asked    chan struct{} // Responds sends, the loop receives

	mu        sync.Mutex // guards what Status reads
	objects   *feed.Merger[config.Key, *config.Object]
	instances *feed.Merger[registry.Key, registry.Instances]
	builds    int
	partial   bool                 // the first state of the deriver lacks what it still waits for
	between   map[place][]finding  // what objects and services of the latest context have against one another
	conflicts map[registry.Key]int // in how much sources contradict one another about a service
}

// NewAssembler makes an assembler; Run starts it.
func NewAssembler(cfg AssemblerConfig) *Assembler {
	if cfg.Gap == 0 {
		cfg.Gap = 50 * time.Millisecond
	}
	if cfg.Patience == 0 {
		cfg.Patience = 250 * time.Millisecond
	}
	objects, instances := cfg.names(cfg.Sources)
	a := &Assembler{
		cfg:       cfg,
		inputs:    Inputs{Mesh: cfg.Mesh},
		began:     time.Now(),
		dirty:     true, // an empty mesh is a context too
		found:     newFindings(),
		adopts:    newAdopter(cfg.Mesh.Config.GetDefaultServiceExportTo(), cfg.Merging.Relayed),
		relays:    relays{},
		moves:     newMoving(),
		between:   map[place][]finding{},
		conflicts: map[registry.Key]int{},
		arranged:  make(chan Sources),
		asked:     make(chan struct{}),
		instances: feed.NewMerger(instances, func(in registry.Instances) registry.Key { return in.Service.Key }),
	}
	a.use = newObjectBook(objects, a.began)
	a.objects, a.use.look, a.use.tell = a.use.merger, a.look, a.standHeld
	if cfg.Tell != nil {
		a.own = newOwn(*cfg.Tell, cfg.Merging, objects, a.began)
		a.own.resume(cfg.Held, cfg.Before)
		a.own.objects.lies(a.use)
		a.own.objects.tell = func(k config.Key, _ *config.Object) { a.standTold(k) }
		if cfg.Tell.Services {
			a.adopts.asked() // from now on it notes them
		}
	}
	a.adopts.arrange(instances)
	a.use.resume(cfg.Held, cfg.Before)
	a.inputs.Objects = a.use.objects
	for _, b := range cfg.Before {
		a.left = append(a.left, b.Source)
	}
	return a
}

// Run runs the sources and builds a context for what they say, until ctx ends. Nothing is built
// until every source has delivered its first complete state. An error is that of a source that can
// never work, or that of Sources.Check.
func (a *Assembler) Run(ctx context.Context) error {
	if err := a.cfg.Sources.Check(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	objects := newCrew[*config.Object](group)
	instances := newCrew[registry.Instances](group)
	again := make(chan struct{}, 1)
	if d := a.cfg.Derive; d != nil {
		group.Go(func() error { return named(d.Name(), d.Run(ctx, func() { wake(again) })) })
	}
	keys := make(chan *KeySets)
	if k := a.cfg.Keys; k != nil {
		group.Go(func() error { return k.Run(ctx, keys) })
	}
	group.Go(func() error { a.loop(ctx, objects, instances, arrivals{again, keys}); return nil })
	return group.Wait()
}

func named(source string, err error) error {
	if err != nil {
		return fmt.Errorf("source %s: %w", source, err)
	}
	return nil
}

// wake leaves word for who reads c, unless there is some already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// arrivals are where the loop hears from others than sources.
type arrivals struct {
	again <-chan struct{}
	keys  <-chan *KeySets
}

// Responds returns nil as soon as the goroutine that owns the state is idle, and ctx's error when that ends before.
func (a *Assembler) Responds(ctx context.Context) error {
	select {
	case a.asked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop owns the state. Only one of these things can happen at a time: a batch, whom to trust or keys arrive, the
// deriver has more, the sources are others, or it is time to look what is due.
func (a *Assembler) loop(ctx context.Context, objects *crew[*config.Object], instances *crew[registry.Instances], from arrivals) {
	objects.arrange(ctx, a.cfg.Sources.Objects)
	instances.arrange(ctx, a.cfg.Sources.Instances)
	if now := time.Now(); a.holds() {
		a.updateObjects(ctx, nil, edits{}, now, now) // there may be nobody to wait for
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-objects.out:
			if objects.counts(w) {
				a.takeObjects(ctx, w.batch, time.Now())
			}
		case w := <-instances.out:
			if instances.counts(w) {
				a.takeInstances(ctx, w.batch, time.Now())
			}
		case s := <-a.arranged:
			anew, _ := objects.arrange(ctx, s.Objects)
			_, came := instances.arrange(ctx, s.Instances)
			a.arrange(ctx, s, anew, came, time.Now())
		case t := <-a.cfg.Trust:
			a.takeTrust(t, time.Now())
		case k := <-from.keys:
			a.takeKeys(k, time.Now())
		case <-from.again:
			a.spent = false
			a.derive(ctx, time.Now())
		case <-a.asked:
		case <-look.C:
		}
		a.tellLeft(objects, instances)
		early := soonest(a.arrived(ctx, time.Now()), a.moved(time.Now())) // what it builds of comes before due
		if wait := soonest(soonest(early, a.due()), a.lapse(time.Now())); wait > 0 {
			look.Reset(wait)
		}
	}
}

// soonest is the shorter of two times; zero is no time.
func soonest(x, y time.Duration) time.Duration {
	if x == 0 || y == 0 {
		return max(x, y)
	}
	return min(x, y)
}

// due builds if it is time to, and returns after how long to look again; zero: when something arrives.
func (a *Assembler) due() time.Duration {
	own := a.tellOwn(time.Now())
	if wait := a.patience(); wait > 0 {
		return soonest(wait, own)
	}
	if a.dirty && a.synced() {
		if wait := time.Until(a.built.Add(a.cfg.Gap)); wait > 0 {
			return soonest(wait, own)
		}
		a.build()
	}
	a.found.tell(a.cfg.Report)
	return own
}

// patience is how long to wait for the deriver before anything else.
func (a *Assembler) patience() time.Duration {
	if !a.pending() {
		a.waits = time.Time{}
		return 0
	}
	if a.spent {
		return 0
	}
	if a.waits.IsZero() {
		a.waits = time.Now()
	}
	wait := time.Until(a.waits.Add(a.cfg.Patience))
	a.spent = wait <= 0
	return wait
}

func (a *Assembler) pending() bool { return a.cfg.Derive != nil && a.cfg.Derive.Pending() }

// synced says whether every source has delivered its first complete state. Once they have it stays so, and the
// sources, whose status costs a look at every group, are not asked again.
func (a *Assembler) synced() bool {
	if a.ready {
		return true
	}
	if a.pending() || a.cfg.Trust != nil && a.inputs.Trust == nil {
		return false
	}
	if len(a.unread()) > 0 {
		return false
	}
	a.ready = a.firstKeys()
	a.use.inForce = a.ready
	return a.ready
}

// build makes the next context and publishes it.
func (a *Assembler) build() {
	next := Build(a.context, a.inputs)
	changes := Compare(a.context, next)
	changes.Since = a.since
	a.cfg.Publish(next, changes)
	a.crosses.look(a.inputs, a.stand) // what now gets in one another's way
	a.context, a.dirty, a.since, a.waits = next, false, time.Time{}, time.Time{}
	a.mu.Lock()
	a.builds++
	a.mu.Unlock()
	a.built = time.Now()
}

// stand replaces what things at a place have against one another.
func (a *Assembler) stand(at place, found []finding) {
	a.found.set(at, found)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.between[at] = found
	if len(found) == 0 {
		delete(a.between, at)
	}
}
