package push

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Assembler merges the content of all sources, and publishes a Context after each change.
type Assembler struct {
	cfg      AssemblerConfig // immutable
	requests chan request    // received by the loop
	ended    chan struct{}   // closed when Run has ended, and requests are no longer received
}

// NewAssembler returns an Assembler. Call its Run once.
func NewAssembler(cfg AssemblerConfig) *Assembler {
	if cfg.Gap == 0 {
		cfg.Gap = 50 * time.Millisecond
	}
	cfg.Join.ExportTo = cfg.Mesh.Config.GetDefaultServiceExportTo()
	return &Assembler{cfg: cfg, requests: make(chan request), ended: make(chan struct{})}
}

// Run runs the sources and publishes contexts until ctx ends. It publishes the first one when all
// required sources have delivered or have saved content, and when trust, secrets, virtual IPs and
// keys have arrived. It returns the error of Sources.Check, or that of a source that can never work.
func (a *Assembler) Run(ctx context.Context) error {
	defer close(a.ended)
	if err := a.cfg.Sources.Check(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	l := &loop{
		assembly:       newAssembly(&a.cfg),
		requests:       a.requests,
		objectBatches:  make(chan feed.Batch[*config.Object]),
		serviceBatches: make(chan feed.Batch[registry.Instances]),
		allocated:      make(chan registry.VIPs),
		fetched:        make(chan *KeySets),
	}
	runSources(ctx, group, a.cfg.Sources.Objects, l.objectBatches)
	runSources(ctx, group, a.cfg.Sources.Services, l.serviceBatches)
	if v := a.cfg.Allocator; v != nil {
		group.Go(func() error { return v.Run(ctx, l.allocated) })
	}
	if k := a.cfg.Keys; k != nil {
		group.Go(func() error { return k.Run(ctx, l.fetched) })
	}
	if d := a.cfg.Deriver; d != nil {
		l.derivable = d.Watch(ctx)
	}
	group.Go(func() error { l.run(ctx); return nil })
	return group.Wait()
}

// runSources runs sources until ctx ends. They send to out.
func runSources[T any](ctx context.Context, group *errgroup.Group, list []Source[T], out chan<- feed.Batch[T]) {
	for _, s := range list {
		group.Go(func() error {
			if err := s.Run(ctx, out); err != nil {
				return fmt.Errorf("source %s: %w", s.Name(), err)
			}
			return nil
		})
	}
}

// loop is the state of an Assembler. The goroutine of run owns it.
type loop struct {
	*assembly
	requests       <-chan request
	objectBatches  chan feed.Batch[*config.Object]
	serviceBatches chan feed.Batch[registry.Instances]
	derivable      <-chan struct{} // receives when the deriver has changes
	allocated      chan registry.VIPs
	fetched        chan *KeySets

	vipsHere   bool     // the first virtual IPs arrived
	keysWanted bool     // Keys.Want was called
	keysHere   bool     // keys arrived after Keys.Want
	serving    bool     // the first build no longer waits
	context    *Context // the latest context; nil before the first build
	builds     int
}

// run handles one event at a time, and builds a context when one is due.
func (l *loop) run(ctx context.Context) {
	l.restore(l.cfg.Saved, time.Now())
	l.derive(time.Now())
	var (
		dirty = true    // the inputs differ from the context; true at first, for an empty mesh
		since time.Time // when the first change after the last build was noticed
		built time.Time // when the last build ended
		timer = time.NewTimer(0)
	)
	defer timer.Stop()
	for {
		before, noticed := l.inputs, time.Time{}
		select {
		case <-ctx.Done():
			return
		case b := <-l.objectBatches:
			l.applyObjects(b, time.Now())
			noticed = b.Since
		case b := <-l.serviceBatches:
			l.applyServices(b, time.Now())
			noticed = b.Since
		case <-l.derivable:
			l.derive(time.Now())
		case l.inputs.Trust = <-l.cfg.Trust:
		case l.inputs.Secrets = <-l.cfg.Secrets:
		case vips := <-l.allocated:
			l.setVIPs(vips)
			l.vipsHere = true
		case l.inputs.Keys = <-l.fetched:
			l.keysHere = l.keysWanted
		case handle := <-l.requests:
			handle(l)
		case <-timer.C:
			l.expire(time.Now())
		}

		now := time.Now()
		if l.inputs != before {
			if noticed.IsZero() {
				noticed = now
			}
			dirty, since = true, feed.Earlier(since, noticed)
		}
		l.wantKeys()
		l.save()
		wake := l.nextExpiry()
		if l.exporter != nil {
			wake = feed.Earlier(wake, l.exporter.publish(l.waiting(), now))
		}
		if dirty && l.ready() {
			if next := built.Add(l.cfg.Gap); now.Before(next) {
				wake = feed.Earlier(wake, next)
			} else {
				l.build(since)
				dirty, since, built = false, time.Time{}, time.Now()
			}
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
	}
}

// waiting lists the required sources that have neither delivered nor saved content.
func (l *loop) waiting() []string { return append(l.objects.Waiting(), l.services.Waiting()...) }

// ready reports whether everything has arrived that the first build waits for. It never becomes
// false again.
func (l *loop) ready() bool {
	switch {
	case l.serving:
		return true
	case len(l.waiting()) > 0, l.cfg.Trust != nil && l.inputs.Trust == nil,
		l.cfg.Secrets != nil && l.inputs.Secrets == nil, l.cfg.Allocator != nil && !l.vipsHere:
		return false
	case l.cfg.Keys != nil && !l.keysWanted:
		// Without keys, proxies would reject tokens that were valid before the start.
		l.keysWanted, l.rekey = true, false
		l.cfg.Keys.Want(keyTimeouts(l.inputs.Objects))
	}
	l.serving = l.cfg.Keys == nil || l.keysHere
	return l.serving
}

// wantKeys requests the keys of RequestAuthentications that changed after the first request.
func (l *loop) wantKeys() {
	if l.keysWanted && l.rekey {
		l.rekey = false
		l.cfg.Keys.Want(keyTimeouts(l.inputs.Objects))
	}
}

// save sends the groups that changed to Save.
func (l *loop) save() {
	changed := l.takeSaved()
	if l.cfg.Save != nil && len(changed.Objects)+len(changed.Services) > 0 {
		l.cfg.Save(changed)
	}
}

// build builds the next context and publishes it.
func (l *loop) build(since time.Time) {
	if l.newWants && l.cfg.Allocator != nil {
		l.newWants = false
		l.cfg.Allocator.Want(l.wants())
	}
	next := Build(l.context, l.inputs)
	changes := Compare(l.context, next)
	changes.Since = since
	l.context = next
	l.builds++
	l.cfg.Publish(next, changes)
}
