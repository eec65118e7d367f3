package consul

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// subscriber is one Run: the keys that changed since its last batch.
type subscriber struct {
	wake chan struct{} // cap 1; of changes, and of how Consul stands

	mu sync.Mutex
	// the following are guarded by mu
	changed map[config.Key]bool
	since   time.Time // when the first of changed did
}

// add notes changes.
func (f *subscriber) add(keys []config.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changed) == 0 {
		f.since = time.Now()
	}
	for _, k := range keys {
		f.changed[k] = true
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take is what changed since it was called last, and when that began.
func (f *subscriber) take() (map[config.Key]bool, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.changed
	f.changed = map[config.Key]bool{}
	return changed, f.since
}

// Run implements config.Source. Every object is a group of its own. It says nothing before Consul has answered; and how Consul
// stands, whenever that changes. It hears of other replicas while Follow runs.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	f := &subscriber{wake: make(chan struct{}, 1), changed: map[config.Key]bool{}}
	defer s.subscribe(f)()
	defer s.standing.subscribe(f.wake)()
	said := false
	var told feed.Standing
	for {
		b := feed.Batch[*config.Object]{Source: s.Name()}
		changed, since := f.take() // before the state is read
		if known := s.state.Load(); !known.partial {
			b.Since = since
			if !said {
				b = s.everything(known)
			} else {
				b.Updates = updates(known, slices.SortedFunc(maps.Keys(changed), config.Key.Compare), since)
			}
			said = true
		}
		if now := s.Standing(); now != told {
			b.Standing, told = &now, now
		}
		if b.Full || len(b.Updates) > 0 || b.Standing != nil {
			select {
			case <-ctx.Done():
				return nil
			case out <- b:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
	}
}

// subscribe has f told of changes until the returned function is called.
func (s *Store) subscribe(f *subscriber) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.feeds, f)
	}
}

// everything is a batch of all objects.
func (s *Store) everything(known *state) feed.Batch[*config.Object] {
	b := feed.Batch[*config.Object]{Source: s.Name(), Full: true, Since: time.Now()}
	keys := make([]config.Key, 0, known.objects.Len())
	for k := range known.objects.All() {
		keys = append(keys, k)
	}
	b.Updates = updates(known, keys, b.Since)
	return b
}

// updates are the groups of objects by their keys; those that there are no more are empty.
func updates(known *state, keys []config.Key, asOf time.Time) []feed.Update[*config.Object] {
	out := make([]feed.Update[*config.Object], len(keys))
	for i, k := range keys {
		out[i] = feed.Update[*config.Object]{Group: k.String(), AsOf: asOf}
		switch o, ok := known.objects.Get(k); {
		case ok && o.decoded != nil:
			out[i].Items = []*config.Object{o.decoded}
		case ok:
			out[i].Problems = []config.Problem{problemOf(k, o)}
		}
	}
	return out
}
