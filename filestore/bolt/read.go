package bolt

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// load reads the objects into memory. It belongs to New.
func (s *Store) load(btx *bbolt.Tx) error {
	t, err := begin(btx)
	if err != nil {
		return err
	}
	if s.revision, err = t.revision(); err != nil {
		return err
	}
	s.writes = len(t.keys(bucketWrites, nil))
	s.objects = map[config.Key]*config.Object{}
	s.broken, s.unread = map[string]config.Problem{}, map[string]config.Key{}
	return t.scan(bucketObjects, nil, s.loadObject)
}

// loadObject takes in one record. One that this release cannot read, such as of a kind that is gone, is a
// problem of that object alone.
func (s *Store) loadObject(k, v []byte) error {
	key, err := parseKey(k)
	if err != nil {
		return err
	}
	o, err := decodeObject(s.Name(), key, v)
	if err != nil {
		s.unread[key.String()] = key
		s.broken[key.String()] = config.Problem{Severity: feed.Error, Object: key.String(),
			Text: fmt.Sprintf("the stored object cannot be used by this release (%v): write it anew or delete it", err)}
		return nil
	}
	s.objects[key] = o
	return nil
}

// Get implements config.Store.
func (s *Store) Get(ctx context.Context, key config.Key) (*config.Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	o := s.objects[key]
	if o == nil {
		if p := s.broken[key.String()]; p.Text != "" {
			return nil, fmt.Errorf("%s: %s", key, p.Text)
		}
		return nil, storage.NotFound(key)
	}
	return o, nil
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

// Unusable are the objects that List leaves out because this release cannot read them, in the order of their keys.
func (s *Store) Unusable(ctx context.Context) ([]storage.Unusable, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	var out []storage.Unusable
	for name, p := range s.broken {
		out = append(out, storage.Unusable{Key: s.unread[name], Why: p.Text})
	}
	slices.SortFunc(out, func(a, b storage.Unusable) int { return a.Key.Compare(b.Key) })
	return out, nil
}

// readable is for callers that hold s.mu.
func (s *Store) readable(ctx context.Context) error {
	if s.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// view runs f in a transaction that reads.
func (s *Store) view(ctx context.Context, f func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return ErrClosed
	}
	err := s.db.View(func(btx *bbolt.Tx) error { return f(&tx{Tx: btx}) })
	if err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	return nil
}
