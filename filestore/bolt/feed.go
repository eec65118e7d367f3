package bolt

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Unwritable is the group of the problem that the store cannot be written, and the Field of the
// problem.
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

// Run implements config.Source. Every object is a group of its own. A group Unwritable says that
// the store cannot be written: its file is missing, which needs Guard, or the disk refused a write.
// It returns when the store is closed, too.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	f := &subscriber{wake: make(chan struct{}, 1), changed: map[config.Key]bool{}}
	batch := s.subscribe(f)
	defer s.unsubscribe(f)
	var reported config.Outage
	for {
		if now := s.unwritable(); now != reported {
			reported = now
			batch.Updates = append(batch.Updates, unwritableGroup(now))
		}
		if len(batch.Updates) > 0 || batch.Full {
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

// unwritable is why the store cannot be written, or not all that is.
func (s *Store) unwritable() config.Outage {
	if missing := s.missing.Load(); missing != nil {
		return *missing
	}
	return s.Refused()
}

// unwritableGroup is the group that says why the store cannot be written; empty if it can.
func unwritableGroup(why config.Outage) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: Unwritable}
	if why.Error != "" {
		u.Problems = []feed.Problem{{Severity: feed.Error, Field: Unwritable, Text: why.Error, Since: why.Since}}
	}
	return u
}

// subscribe adds f and returns everything as it is at that moment.
func (s *Store) subscribe(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f] = true
	b := feed.Batch[*config.Object]{Source: s.Name(), Full: true, Since: time.Now()}
	for _, k := range slices.SortedFunc(maps.Keys(s.objects), config.Key.Compare) {
		b.Updates = append(b.Updates, update(k, s.objects[k]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.broken)) {
		u := feed.Update[*config.Object]{Group: name, Problems: []config.Problem{s.broken[name]}}
		if k, ok := s.unread[name]; ok {
			u.Invalid = []string{k.String()}
		}
		b.Updates = append(b.Updates, u)
	}
	return b
}

func (s *Store) unsubscribe(f *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
}

// take returns what changed. Somebody asked for each deletion.
func (s *Store) take(f *subscriber) feed.Batch[*config.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := feed.Batch[*config.Object]{Source: s.Name(), Explicit: true, Since: f.since}
	for _, k := range slices.SortedFunc(maps.Keys(f.changed), config.Key.Compare) {
		b.Updates = append(b.Updates, update(k, s.objects[k]))
	}
	clear(f.changed)
	return b
}

// update is the group of one object, nil when there is none any more.
func update(k config.Key, o *config.Object) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: k.String()}
	if o != nil {
		u.Items = []*config.Object{o}
	}
	return u
}
