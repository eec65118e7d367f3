package bolt

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/feed"
)

var _ feed.Store = (*Store)(nil)

// LoadGroups implements feed.Store.
func (s *Store) LoadGroups(ctx context.Context, set string) (map[string][]byte, error) {
	out := map[string][]byte{}
	prefix := []byte(set + "\x00")
	err := s.view(ctx, func(t *tx) error {
		return t.scan(bucketGroups, prefix, func(k, v []byte) error {
			out[string(k[len(prefix):])] = bytes.Clone(v)
			return nil
		})
	})
	return out, err
}

// SaveGroups implements feed.Store. Content that is equal to what was saved is not written.
func (s *Store) SaveGroups(ctx context.Context, set string, content map[string][]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save groups in %s: other writes took too long, is the disk slow? %w", s.path, err)
	}
	err := s.update(func(t *tx) error {
		for name, b := range content {
			if err := t.saveGroup([]byte(set+"\x00"+name), b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save groups in %s: %w", s.path, err)
	}
	return nil
}

// saveGroup replaces the content of one group, or deletes it if content is nil.
func (t *tx) saveGroup(key, content []byte) error {
	if content == nil {
		return t.delete(bucketGroups, key)
	}
	old, err := t.get(bucketGroups, key)
	if err != nil || old != nil && bytes.Equal(old, content) {
		return err
	}
	return t.put(bucketGroups, key, content)
}
