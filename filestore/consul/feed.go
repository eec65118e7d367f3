package consul

import (
	"context"
	"errors"
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
	reload  bool      // something changed because all was read anew, and not by a write
}

// add notes changes, by a write or because all was read anew.
func (f *subscriber) add(keys []config.Key, reload bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changed) == 0 {
		f.since = time.Now()
	}
	f.reload = f.reload || reload
	for _, k := range keys {
		f.changed[k] = true
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns what changed since it was called last, when that began, and whether all of it was
// written by somebody.
func (f *subscriber) take() (changed map[config.Key]bool, since time.Time, explicit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, explicit = f.changed, !f.reload
	f.changed, f.reload = map[config.Key]bool{}, false
	return changed, f.since, explicit
}

// Unwritable is the group of the problem that Consul takes no writes, and the Field of the problem.
const Unwritable = "state"

// Run implements config.Source. Every object is a group of its own. The store is down while Consul
// cannot be read; a group Unwritable says that it cannot be written. Changes by other replicas need
// Follow.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	f := &subscriber{wake: make(chan struct{}, 1), changed: map[config.Key]bool{}}
	defer s.subscribe(f)()
	defer s.standing.subscribe(f.wake)()
	synced, down := false, ""
	var unwritable config.Outage // as reported
	for {
		b := s.batch(f, synced)
		synced = synced || b.Full
		if now := s.Refused(); synced && now != unwritable {
			b.Updates, unwritable = append(b.Updates, unwritableGroup(now)), now
		}
		why := s.Standing().Error
		var batches []feed.Batch[*config.Object]
		if b.Full || len(b.Updates) > 0 || down != "" && why == "" {
			batches, down = append(batches, b), ""
		}
		if why != down {
			batches, down = append(batches, feed.Batch[*config.Object]{Source: s.Name(), Down: errors.New(why)}), why
		}
		for _, b := range batches {
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

// batch has what changed, or everything at first. It has nothing before Consul was read.
func (s *Store) batch(f *subscriber, synced bool) feed.Batch[*config.Object] {
	changed, since, explicit := f.take() // before the state is read
	known := s.state.Load()
	switch {
	case known.partial:
		return feed.Batch[*config.Object]{Source: s.Name()}
	case !synced:
		return s.everything(known)
	}
	keys := slices.SortedFunc(maps.Keys(changed), config.Key.Compare)
	return feed.Batch[*config.Object]{Source: s.Name(), Explicit: explicit, Since: since, Updates: updates(known, keys)}
}

// unwritableGroup is the group that says why Consul takes no writes; empty if it does.
func unwritableGroup(why config.Outage) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: Unwritable}
	if why.Error != "" {
		text := why.Error + "; what is stored stays active"
		u.Problems = []feed.Problem{{Severity: feed.Error, Field: Unwritable, Text: text, Since: why.Since}}
	}
	return u
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
	b.Updates = updates(known, keys)
	return b
}

// updates are the groups of objects by their keys; those that there are no more are empty.
func updates(known *state, keys []config.Key) []feed.Update[*config.Object] {
	out := make([]feed.Update[*config.Object], len(keys))
	for i, k := range keys {
		out[i] = feed.Update[*config.Object]{Group: k.String()}
		switch o, ok := known.objects.Get(k); {
		case ok && o.decoded != nil:
			out[i].Items = []*config.Object{o.decoded}
		case ok:
			out[i].Invalid, out[i].Problems = []string{k.String()}, []config.Problem{problemOf(k, o)}
		}
	}
	return out
}
