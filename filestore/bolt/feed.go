package bolt

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Unwritable is the field of the problem that tells that something cannot be written.
const Unwritable = "state"

// subscriber is one Run: the keys that changed since its last batch.
type subscriber struct {
	wake chan struct{} // cap 1

	// guarded by Store.mu
	changed map[config.Key]bool
	since   time.Time // when the first of changed did
}

// add notes a change.
func (f *subscriber) add(k config.Key) {
	if len(f.changed) == 0 {
		f.since = time.Now()
	}
	f.changed[k] = true
	f.notify()
}

func (f *subscriber) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Name implements config.Source: "store:" and the path.
func (s *Store) Name() string { return "store:" + s.path }

// Run implements config.Source. Every object is a group of its own. It says what keeps it from being written: the file of Missing is
// gone, which it hears of while Guard runs, or the disk did not take a write. It is in touch all the same: what it says is what is there.
// It ends when the store is closed, too.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	f := &subscriber{wake: make(chan struct{}, 1), changed: map[config.Key]bool{}}
	batch := s.subscribe(f)
	defer s.unsubscribe(f)
	var told feed.Standing
	for {
		if now := s.unwritable(); now != told {
			batch.Standing, told = s.standing(now), now
		}
		if len(batch.Updates) > 0 || batch.Full || batch.Standing != nil {
			select {
			case <-ctx.Done():
				return nil
			case out <- batch:
			}
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

// unwritable is what keeps it from being written, or some of what is, and since when; the zero value: nothing does.
func (s *Store) unwritable() feed.Standing {
	if gone := s.missing.Load(); gone != nil {
		return *gone
	}
	return s.Refused()
}

// standing is how the store stands as a source, while why keeps it from being written.
func (s *Store) standing(why feed.Standing) *feed.Standing {
	if why.Error == "" {
		return &feed.Standing{}
	}
	return &feed.Standing{Besides: &feed.Problem{Severity: feed.Error, Source: s.Name(), Field: Unwritable, Text: why.Error, Since: why.Since}}
}

// subscribe adds f and returns everything as it is at that moment.
func (s *Store) subscribe(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f] = true
	b := feed.Batch[*config.Object]{Source: s.Name(), Full: true, Since: time.Now()}
	for _, k := range slices.SortedFunc(maps.Keys(s.objects), config.Key.Compare) {
		b.Updates = append(b.Updates, update(k, s.objects[k], b.Since))
	}
	for _, name := range slices.Sorted(maps.Keys(s.broken)) {
		b.Updates = append(b.Updates, feed.Update[*config.Object]{Group: name, Problems: []config.Problem{s.broken[name]}, AsOf: b.Since})
	}
	return b
}

func (s *Store) unsubscribe(f *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
}

// take returns what changed.
func (s *Store) take(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := feed.Batch[*config.Object]{Source: s.Name(), Since: f.since}
	for _, k := range slices.SortedFunc(maps.Keys(f.changed), config.Key.Compare) {
		b.Updates = append(b.Updates, update(k, s.objects[k], f.since))
	}
	clear(f.changed)
	return b
}

// update is the group of one object, nil when there is none any more.
func update(k config.Key, o *config.Object, asOf time.Time) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: k.String(), AsOf: asOf}
	if o != nil {
		u.Items = []*config.Object{o}
	}
	return u
}
