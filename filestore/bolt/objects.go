package bolt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// load reads the objects into memory. An object that cannot be read is unusable; the others are
// used.
func (s *Store) load(tx *bbolt.Tx) error {
	objects := tx.Bucket(bucketObjects)
	s.revision = objects.Sequence()
	return objects.ForEach(func(k, v []byte) error {
		key, err := storage.ParseObjectKey(string(k))
		if err != nil {
			return err
		}
		o, err := storage.DecodeObject(s.Name(), key, v)
		if err != nil {
			s.unusable[key] = fmt.Sprintf("the stored object cannot be read (%v): apply a valid version of it", err)
			return nil
		}
		s.objects[key] = o
		return nil
	})
}

func objectKey(k config.Key) []byte { return []byte(storage.ObjectKey(k)) }

// Get implements config.Store.
func (s *Store) Get(ctx context.Context, key config.Key) (*config.Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	if o := s.objects[key]; o != nil {
		return o, nil
	}
	if why := s.unusable[key]; why != "" {
		return nil, fmt.Errorf("%s: %s", key, why)
	}
	return nil, storage.NotFound(key)
}

// List implements config.Store.
func (s *Store) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	var out []*config.Object
	for k, o := range s.objects {
		if (kind == "" || k.Kind == kind) && (namespace == "" || k.Namespace == namespace) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *config.Object) int { return a.Key.Compare(b.Key) })
	return out, nil
}

// Unusable returns the stored objects that cannot be read, in the order of their keys. List omits
// them.
func (s *Store) Unusable(ctx context.Context) ([]storage.Unusable, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	var out []storage.Unusable
	for _, k := range slices.SortedFunc(maps.Keys(s.unusable), config.Key.Compare) {
		out = append(out, storage.Unusable{Key: k, Why: s.unusable[k]})
	}
	return out, nil
}

// readable returns why objects cannot be read. Callers hold s.mu.
func (s *Store) readable(ctx context.Context) error {
	if s.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// Apply implements config.Store. A new object without a creation time is created now.
func (s *Store) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	for _, c := range changes {
		if err := storage.CheckChange(c); err != nil {
			return "", err
		}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	stored := func(k config.Key) *config.Object { return s.objects[k] }
	unreadable := func(k config.Key) bool { return s.unusable[k] != "" }
	if err := storage.CheckAll(changes, stored, unreadable); err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return storage.Revision(s.revision), nil
	}
	w := &writer{store: s, revision: s.revision + 1, who: who, now: time.Now().UTC()}
	if err := s.update(func(tx *bbolt.Tx) error { return w.write(tx, changes) }); err != nil {
		return "", err
	}
	s.publish(changes, w.written, w.revision)
	return storage.Revision(w.revision), nil
}

// writer writes one revision.
type writer struct {
	store    *Store
	revision uint64
	who      string
	now      time.Time
	written  []*config.Object // nil for deleted ones
}

func (w *writer) write(tx *bbolt.Tx, changes []config.Change) error {
	objects := tx.Bucket(bucketObjects)
	if err := objects.SetSequence(w.revision); err != nil {
		return err
	}
	for _, c := range changes {
		if err := w.remember(tx, c.Key); err != nil {
			return err
		}
		o, err := w.writeObject(objects, c)
		if err != nil {
			return err
		}
		w.written = append(w.written, o)
	}
	return trimHistory(tx, w.revision, w.store.cfg.HistoryBytes, w.now.Add(-w.store.cfg.HistoryAge))
}

// writeObject writes or deletes one object and returns it as it is stored.
func (w *writer) writeObject(objects *bbolt.Bucket, c config.Change) (*config.Object, error) {
	if c.Object == nil {
		return nil, objects.Delete(objectKey(c.Key))
	}
	o := *c.Object
	if stored := w.store.objects[c.Key]; stored != nil {
		o.Created = stored.Created
	} else if o.Created.IsZero() {
		o.Created = w.now
	}
	value, err := storage.EncodeObject(&o, w.revision)
	if err != nil {
		return nil, err
	}
	if err := objects.Put(objectKey(c.Key), value); err != nil {
		return nil, fmt.Errorf("write %s: %w", c.Key, err)
	}
	return storage.DecodeObject(w.store.Name(), c.Key, value) // a copy, which the caller cannot change
}

// publish makes a revision visible to readers and feeds.
func (s *Store) publish(changes []config.Change, written []*config.Object, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	for i, c := range changes {
		delete(s.unusable, c.Key)
		if written[i] == nil {
			delete(s.objects, c.Key)
		} else {
			s.objects[c.Key] = written[i]
		}
		for f := range s.feeds {
			f.add(c.Key)
		}
	}
}
