package push

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Deriver makes services of configuration: package registry/entry does.
type Deriver interface {
	// Name identifies it to people.
	Name() string
	// Derive returns the services that changed since the last call, as groups.
	Derive(ctx context.Context, objects Objects) feed.Batch[registry.Instances]
	// Wanting says that something is missing that a later call may find.
	Wanting() bool
}

// AssemblerConfig says what an Assembler merges and where it goes.
type AssemblerConfig struct {
	// Objects are the sources of configuration, the deciding one first.
	Objects []config.Source
	// Instances are the sources of services, the deciding one first; those that Derive makes of
	// configuration come before them.
	Instances []feed.Source[registry.Instances]
	// Derive makes services of configuration; nil: nothing does.
	Derive Deriver
	// Mesh are the mesh-wide settings; required.
	Mesh *Mesh
	// Gap is the least time from the end of a build to the next one, so that a storm of changes costs a
	// bounded share of the machine. The first change after a quiet spell is built at once. Default 50ms.
	Gap time.Duration
	// Retry is how long a Deriver that wants something waits for its next try. Default 5s.
	Retry time.Duration
	// Publish receives every context; required. It is called from one goroutine and should not block.
	Publish func(*Context, Changes)
}

// Assembler merges what all sources say into contexts. One goroutine owns it all.
type Assembler struct {
	cfg AssemblerConfig // set once

	// the following belong to the goroutine of Run
	inputs  Inputs
	context *Context
	dirty   bool      // inputs differ from context
	ready   bool      // every source has delivered its first complete state
	since   time.Time // when the first change that is not built yet was noticed
	built   time.Time // end of the last build

	mu        sync.Mutex // guards what Status reads
	objects   *feed.Merger[config.Key, *config.Object]
	instances *feed.Merger[registry.Key, registry.Instances]
	builds    int
}

// NewAssembler makes an assembler; Run starts it.
func NewAssembler(cfg AssemblerConfig) *Assembler {
	if cfg.Gap == 0 {
		cfg.Gap = 50 * time.Millisecond
	}
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	var objects, instances []string
	for _, s := range cfg.Objects {
		objects = append(objects, s.Name())
	}
	if cfg.Derive != nil {
		instances = append(instances, cfg.Derive.Name())
	}
	for _, s := range cfg.Instances {
		instances = append(instances, s.Name())
	}
	return &Assembler{
		cfg:       cfg,
		inputs:    Inputs{Mesh: cfg.Mesh},
		dirty:     true, // an empty mesh is a context too
		objects:   feed.NewMerger(objects, func(o *config.Object) config.Key { return o.Key }),
		instances: feed.NewMerger(instances, func(in registry.Instances) registry.Key { return in.Service.Key }),
	}
}

// Run runs the sources and builds a context for what they say, until ctx ends. Nothing is built
// until every source has delivered its first complete state. An error is that of a source that can
// never work.
func (a *Assembler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	objects := make(chan feed.Batch[*config.Object])
	instances := make(chan feed.Batch[registry.Instances])
	for _, s := range a.cfg.Objects {
		group.Go(func() error { return named(s.Name(), s.Run(ctx, objects)) })
	}
	for _, s := range a.cfg.Instances {
		group.Go(func() error { return named(s.Name(), s.Run(ctx, instances)) })
	}
	group.Go(func() error { a.loop(ctx, objects, instances); return nil })
	return group.Wait()
}

func named(source string, err error) error {
	if err != nil {
		return fmt.Errorf("source %s: %w", source, err)
	}
	return nil
}

// loop owns the state. Only one of these things can happen at a time: a batch arrives, or it is time
// to build, or to ask the deriver again.
func (a *Assembler) loop(ctx context.Context, objects <-chan feed.Batch[*config.Object], instances <-chan feed.Batch[registry.Instances]) {
	build := time.NewTimer(0) // fires when the gap after the last build is over
	retry := time.NewTimer(a.cfg.Retry)
	defer build.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-objects:
			a.takeObjects(ctx, b)
		case b := <-instances:
			a.takeInstances(b)
		case <-retry.C:
			if a.cfg.Derive != nil && a.cfg.Derive.Wanting() {
				a.derive(ctx)
			}
			retry.Reset(a.cfg.Retry)
		case <-build.C:
		}
		if !a.dirty || !a.synced() {
			continue
		}
		if wait := time.Until(a.built.Add(a.cfg.Gap)); wait > 0 {
			build.Reset(wait)
			continue
		}
		a.build()
	}
}

// synced says whether every source has delivered its first complete state. Once they have it stays so, and the
// sources, whose status costs a look at every group, are not asked again.
func (a *Assembler) synced() bool {
	if a.ready {
		return true
	}
	if !a.objects.Synced() {
		return false
	}
	for _, s := range a.instances.Sources() {
		if !s.Synced && (a.cfg.Derive == nil || s.Name != a.cfg.Derive.Name()) {
			return false
		}
	}
	a.ready = true
	return true
}

// takeObjects merges configuration and derives the services that depend on it.
func (a *Assembler) takeObjects(ctx context.Context, b feed.Batch[*config.Object]) {
	a.mu.Lock()
	touched := a.objects.Apply(b, time.Now())
	a.mu.Unlock()
	before := a.inputs.Objects
	for _, k := range touched {
		items := a.objects.Items(k)
		if len(items) == 0 {
			a.inputs.Objects = a.inputs.Objects.Without(k)
			continue
		}
		if old, ok := a.inputs.Objects.Get(k); !ok || !same(old, items[0]) {
			a.inputs.Objects = a.inputs.Objects.With(k, items[0])
		}
	}
	if a.inputs.Objects != before {
		a.changed(b.Since)
	}
	a.derive(ctx)
}

// same says that o tells neither proxies nor people anything that old does not.
func same(old, o *config.Object) bool {
	return old.Hash == o.Hash && old.Revision == o.Revision && old.Origin == o.Origin
}

// derive asks the deriver, which knows what changed since it was last asked.
func (a *Assembler) derive(ctx context.Context) {
	if a.cfg.Derive == nil {
		return
	}
	if b := a.cfg.Derive.Derive(ctx, a.inputs.Objects); len(b.Updates) > 0 || b.Full {
		a.takeInstances(b)
	}
}

// takeInstances merges services and their endpoints; what is equal keeps its pointer.
func (a *Assembler) takeInstances(b feed.Batch[registry.Instances]) {
	a.mu.Lock()
	touched := a.instances.Apply(b, time.Now())
	a.mu.Unlock()
	before := a.inputs
	for _, k := range touched {
		items := a.instances.Items(k)
		if len(items) == 0 {
			a.inputs.Services = a.inputs.Services.Without(k)
			a.inputs.Endpoints = a.inputs.Endpoints.Without(k)
			continue
		}
		old := registry.Instances{Service: a.inputs.Services.At(k), Endpoints: a.inputs.Endpoints.At(k)}
		now := registry.Keep(old, registry.Merge(items))
		a.inputs.Services = a.inputs.Services.With(k, now.Service)
		a.inputs.Endpoints = a.inputs.Endpoints.With(k, now.Endpoints)
	}
	if a.inputs != before {
		a.changed(b.Since)
	}
}

func (a *Assembler) changed(since time.Time) {
	a.dirty = true
	if since.IsZero() {
		since = time.Now()
	}
	if a.since.IsZero() || since.Before(a.since) {
		a.since = since
	}
}

// build makes the next context and publishes it.
func (a *Assembler) build() {
	next := Build(a.context, a.inputs)
	changes := Compare(a.context, next)
	changes.Since = a.since
	a.context, a.dirty, a.since = next, false, time.Time{}
	a.cfg.Publish(next, changes)
	a.mu.Lock()
	a.builds++
	a.mu.Unlock()
	a.built = time.Now()
}

// Status is how the sources stand and all that is wrong with what they say.
type Status struct {
	Sources  []feed.SourceStatus
	Problems []feed.Problem
	// Builds counts the contexts that were made.
	Builds int
}

// Status may be called at any time from anywhere.
func (a *Assembler) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Status{Builds: a.builds, Sources: a.objects.Sources(), Problems: a.objects.Problems(clash)}
	s.Sources = append(s.Sources, a.instances.Sources()...)
	s.Problems = slices.Concat(s.Problems, a.instances.Problems(nil))
	return s
}

// clash tells of an object that two sources or groups define.
func clash(counts, other *config.Object) feed.Problem {
	where := func(o *config.Object) string {
		if o.Origin.File == "" {
			return o.Origin.Source
		}
		return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
	return feed.Problem{
		Severity: feed.Error, Source: other.Origin.Source, Object: other.Key.String(), File: other.Origin.File, Line: other.Origin.Line,
		Text: "is defined in " + where(counts) + " too, and that one is in use: remove one of the two",
	}
}
