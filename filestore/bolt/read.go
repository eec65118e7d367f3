package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// load reads objects and addresses into memory. It belongs to New.
func (s *Store) load(btx *bbolt.Tx) error {
	t, err := begin(btx, schema)
	if err != nil {
		return err
	}
	if s.revision, err = t.revision(); err != nil {
		return err
	}
	s.writes = len(t.keys(bucketWrites, nil))
	s.objects = map[config.Key]*config.Object{}
	s.broken, s.unread = map[string]config.Problem{}, map[string]config.Key{}
	if err := t.scan(bucketObjects, nil, s.loadObject); err != nil {
		return err
	}
	s.addresses = map[registry.Key][]netip.Addr{}
	if err := t.scan(bucketAddresses, nil, s.loadAddress); err != nil {
		return err
	}
	s.idle = map[registry.Key]time.Time{}
	if err := t.scan(bucketIdle, nil, s.loadIdle); err != nil {
		return err
	}
	if n := len(s.takenAddresses()); n != 2*len(s.addresses) {
		return fmt.Errorf("%d services share %d virtual addresses", len(s.addresses), n)
	}
	return nil
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

func (s *Store) loadAddress(k, v []byte) error {
	key, err := parseServiceKey(k)
	if err != nil {
		return err
	}
	s.addresses[key], err = parseAddresses(v)
	return err
}

func (s *Store) loadIdle(k, v []byte) error {
	key, err := parseServiceKey(k)
	if err != nil {
		return err
	}
	if s.addresses[key] == nil || len(v) != 8 {
		return fmt.Errorf("%q is said to be idle in %d bytes, and has the addresses %v", k, len(v), s.addresses[key])
	}
	s.idle[key] = time.Unix(int64(binary.BigEndian.Uint64(v)), 0).UTC()
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

// parseServiceKey is the inverse of serviceKey.
func parseServiceKey(b []byte) (registry.Key, error) {
	host, namespace, ok := strings.Cut(string(b), "\x00")
	if !ok {
		return registry.Key{}, fmt.Errorf("%q is not the key of a service", b)
	}
	return registry.Key{Host: host, Namespace: namespace}, nil
}
