package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/internal/feed"
)

var _ feed.Store = (*Store)(nil)

// LoadGroups implements feed.Store.
func (s *Store) LoadGroups(ctx context.Context, set string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		return scan(tx.Bucket(bucketGroups), []byte(set+"\x00"), func(name, v []byte) error {
			out[string(name)] = bytes.Clone(v)
			return nil
		})
	})
	return out, err
}

// SaveGroups implements feed.Store. Unchanged content is not written.
func (s *Store) SaveGroups(ctx context.Context, set string, content map[string][]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for other writes to %s: %w", s.path, err)
	}
	return s.update(func(tx *bbolt.Tx) error {
		groups := tx.Bucket(bucketGroups)
		for name, b := range content {
			var err error
			key := []byte(set + "\x00" + name)
			if old := groups.Get(key); b == nil {
				err = groups.Delete(key)
			} else if old == nil || !bytes.Equal(old, b) {
				err = groups.Put(key, b)
			}
			if err != nil {
				return fmt.Errorf("save group %s of %s: %w", name, set, err)
			}
		}
		return nil
	})
}

// scan calls f for the keys that begin with prefix, without it, in their order.
func scan(b *bbolt.Bucket, prefix []byte, f func(rest, v []byte) error) error {
	c := b.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if err := f(k[len(prefix):], v); err != nil {
			return err
		}
	}
	return nil
}
