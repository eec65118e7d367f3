package consul

import (
	"context"
	"errors"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Run implements config.Source. Each object is a group. The source is down while the store cannot
// be read; before it was read, nothing of the copy is sent. Changes by other replicas need Follow.
func (s *Store) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	changed, health := s.config.watchers.Watch(ctx, objectTable), s.health.watch(ctx)
	f := &subscriber{store: s}
	for {
		for _, b := range f.next() {
			select {
			case <-ctx.Done():
				return nil
			case out <- b:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-health:
		}
	}
}

// subscriber is what a Run has sent.
type subscriber struct {
	store *Store
	sent  *state // nil: nothing
	down  string
}

// next returns the batches with what is new.
func (f *subscriber) next() (out []feed.Batch[*config.Object]) {
	why := f.store.Standing().Error
	if f.sent != nil || why == "" {
		b := f.changes(f.store.config.state.Load())
		if b.Full || len(b.Updates) > 0 || f.down != "" && why == "" {
			out, f.down = append(out, b), ""
		}
	}
	if why != f.down {
		f.down = why
		out = append(out, feed.Batch[*config.Object]{Source: f.store.Name(), Down: errors.New(why)})
	}
	return out
}

// changes returns what differs from what was sent; everything, if nothing was.
func (f *subscriber) changes(now *state) feed.Batch[*config.Object] {
	b := feed.Batch[*config.Object]{Source: f.store.Name(), Since: time.Now()}
	if f.sent == nil {
		b.Full = true
		for k, v := range now.objects() {
			b.Updates = append(b.Updates, groupOf(k, v))
		}
	} else {
		b.Explicit = now.generation == f.sent.generation
		for c := range now.records.Diff(f.sent.records) {
			if c.Key.Table != objectTable {
				continue
			}
			if key, err := storage.ParseObjectKey(c.Key.Name); err == nil {
				b.Updates = append(b.Updates, groupOf(key, c.New))
			}
		}
	}
	f.sent = now
	return b
}

// groupOf returns the group of an object; v is nil if it was deleted.
func groupOf(k config.Key, v *value) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: k.String()}
	switch {
	case v == nil:
	case v.object != nil:
		u.Items = []*config.Object{v.object}
	default:
		u.Invalid = []string{k.String()}
		u.Problems = []feed.Problem{{Severity: feed.Error, Object: k.String(), Text: v.problem}}
	}
	return u
}
