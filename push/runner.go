package push

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// runner runs the sources of one kind. One goroutine owns it and receives from out.
type runner[T any] struct {
	group   *errgroup.Group
	out     chan delivery[T]
	running map[string]*run[T]       // by name
	ended   map[string]chan struct{} // by name; closed when the last run of the source has ended
}

// run is one source while it runs.
type run[T any] struct {
	source feed.Source[T]
	stop   context.CancelFunc
}

// delivery is a batch and the run that sent it.
type delivery[T any] struct {
	batch feed.Batch[T]
	from  *run[T]
}

func newRunner[T any](group *errgroup.Group) *runner[T] {
	return &runner[T]{
		group: group, out: make(chan delivery[T]), running: map[string]*run[T]{}, ended: map[string]chan struct{}{},
	}
}

// set starts and stops sources so that those of the list run. Sources that run already keep
// running.
func (r *runner[T]) set(ctx context.Context, list []Source[T]) {
	before := r.running
	r.running = make(map[string]*run[T], len(list))
	for _, s := range list {
		name := s.Name()
		if running := before[name]; running != nil && running.source == s.Source {
			r.running[name] = running
			delete(before, name)
		}
	}
	for _, replaced := range before {
		replaced.stop()
	}
	for _, s := range list {
		if r.running[s.Name()] == nil {
			r.running[s.Name()] = r.start(ctx, s.Source)
		}
	}
}

// current reports whether the run that sent d has not been stopped.
func (r *runner[T]) current(d delivery[T]) bool { return r.running[d.batch.Source] == d.from }

// start runs a source after the previous run of its name has ended.
func (r *runner[T]) start(ctx context.Context, s feed.Source[T]) *run[T] {
	ctx, stop := context.WithCancel(ctx)
	started := &run[T]{source: s, stop: stop}
	previous, ended := r.ended[s.Name()], make(chan struct{})
	r.ended[s.Name()] = ended
	batches := make(chan feed.Batch[T])
	r.group.Go(func() error {
		defer close(ended)
		defer close(batches)
		defer stop()
		if previous != nil {
			<-previous
		}
		if err := s.Run(ctx, batches); err != nil {
			return fmt.Errorf("source %s: %w", s.Name(), err)
		}
		return nil
	})
	r.group.Go(func() error {
		for b := range batches {
			select {
			case r.out <- delivery[T]{b, started}:
			case <-ctx.Done():
			}
		}
		return nil
	})
	return started
}
