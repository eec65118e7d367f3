package bolt

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// LoadLastGood returns what SaveLastGood kept for a source, by name.
func (s *Store) LoadLastGood(ctx context.Context, source string) (map[string][]byte, error) {
	out := map[string][]byte{}
	prefix := []byte(source + "\x00")
	err := s.view(ctx, func(t *tx) error {
		return t.scan(bucketLastGood, prefix, func(k, v []byte) error {
			out[string(k[len(prefix):])] = bytes.Clone(v)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LastGoodSources returns the names of the sources of which something is kept, sorted.
func (s *Store) LastGoodSources(ctx context.Context) ([]string, error) {
	var out []string
	err := s.view(ctx, func(t *tx) error {
		for _, k := range t.keys(bucketLastGood, nil) {
			source, _, _ := strings.Cut(string(k), "\x00")
			if len(out) == 0 || out[len(out)-1] != source {
				out = append(out, source)
			}
		}
		return nil
	})
	return out, err
}

// SaveLastGood keeps contents for a source, all at once; nil removes one. What is equal is not written.
func (s *Store) SaveLastGood(ctx context.Context, source string, contents map[string][]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("keep last good content in %s: other writes went before it for all of its time, is the disk slow? %w", s.path, err)
	}
	err := s.update(func(t *tx) error {
		for name, content := range contents {
			key := []byte(source + "\x00" + name)
			old, err := t.get(bucketLastGood, key)
			switch {
			case err != nil:
				return err
			case content == nil:
				err = t.delete(bucketLastGood, key)
			case old == nil || !bytes.Equal(old, content):
				err = t.put(bucketLastGood, key, content)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep last good content in %s: %w", s.path, err)
	}
	return nil
}
