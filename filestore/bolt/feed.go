package bolt

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/task"
)

// subscriber is one Run: the keys that changed since its last batch.
type subscriber struct {
	wake chan struct{} // cap 1

	// guarded by Store.mu
	changed map[config.Key]bool
	since   time.Time // when the first of changed did
}

// add adds a changed key.
func (f *subscriber) add(k config.Key) {
	if len(f.changed) == 0 {
		f.since = time.Now()
	}
	f.changed[k] = true
	f.notify()
}

func (f *subscriber) notify() {
	task.Poke(f.wake)
}

// Name implements config.Source.
func (s *Store) Name() string { return "store" }

// Run implements config.Source. Each object is a group. Run returns when ctx ends or the store is
// closed.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	f := &subscriber{wake: make(chan struct{}, 1), changed: map[config.Key]bool{}}
	batch := s.subscribe(f)
	defer s.unsubscribe(f)
	for {
		select {
		case <-ctx.Done():
			return nil
		case out <- batch:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		if s.isClosed() {
			return nil
		}
		batch = s.take(f)
	}
}

// subscribe adds f and returns all objects.
func (s *Store) subscribe(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f] = true
	b := feed.Batch[*config.Object]{Source: s.Name(), Full: true, Since: time.Now()}
	for _, k := range slices.SortedFunc(maps.Keys(s.objects), config.Key.Compare) {
		b.Updates = append(b.Updates, groupOf(k, s.objects[k]))
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.unusable), config.Key.Compare) {
		p := config.Problem{Severity: feed.Error, Object: k.String(), Text: s.unusable[k]}
		u := feed.Update[*config.Object]{Group: k.String(), Problems: []config.Problem{p},
			Invalid: []string{k.String()}}
		b.Updates = append(b.Updates, u)
	}
	return b
}

func (s *Store) unsubscribe(f *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
}

// take returns the changes since the last batch of f.
func (s *Store) take(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := feed.Batch[*config.Object]{Source: s.Name(), Explicit: true, Since: f.since}
	for _, k := range slices.SortedFunc(maps.Keys(f.changed), config.Key.Compare) {
		b.Updates = append(b.Updates, groupOf(k, s.objects[k]))
	}
	clear(f.changed)
	return b
}

// groupOf returns the group of one object; o is nil if it was deleted.
func groupOf(k config.Key, o *config.Object) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: k.String()}
	if o != nil {
		u.Items = []*config.Object{o}
	}
	return u
}
