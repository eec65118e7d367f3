package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// Allocations are all hosts that have virtual addresses, in no order. Nothing is written while they are gone through.
func (s *Store) Allocations() iter.Seq[registry.Allocation] {
	return func(yield func(registry.Allocation) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		for k, a := range s.addresses {
			if !yield(registry.Allocation{Key: k, Addresses: a, Idle: s.idle[k]}) {
				return
			}
		}
	}
}

// Retire notes that no source has keys any more since a time. They keep their addresses: Allocate gives them back, and Reuse to
// others. What has no addresses, or is idle already, stays as it is.
func (s *Store) Retire(ctx context.Context, keys []registry.Key, since time.Time) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	since = since.UTC().Truncate(time.Second)
	fresh := slices.DeleteFunc(slices.Clone(keys), func(k registry.Key) bool { return s.addresses[k] == nil || !s.idle[k].IsZero() })
	if len(fresh) == 0 {
		return nil
	}
	err := s.update(func(t *tx) error {
		for _, k := range fresh {
			if err := t.put(bucketIdle, serviceKey(k), binary.BigEndian.AppendUint64(nil, uint64(since.Unix()))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep which hosts are gone in %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range fresh {
		s.idle[k] = since
	}
	return nil
}

// Reuse gives the addresses of idle hosts to those of keys that have none, those first that have been idle for longest, and returns
// what was given: less than was asked for where there are not enough. It takes those alone that have been idle since the very time
// that idle says.
func (s *Store) Reuse(ctx context.Context, keys []registry.Key, idle map[registry.Key]time.Time) ([]registry.Handover, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := registry.HandOver(s.Allocations(), keys, idle)
	if len(out) == 0 {
		return nil, nil
	}
	err := s.update(func(t *tx) error {
		for _, h := range out {
			from := serviceKey(h.From.Key)
			value := slices.Concat(h.From.Addresses[0].AsSlice(), h.From.Addresses[1].AsSlice())
			err := errors.Join(t.delete(bucketAddresses, from), t.delete(bucketIdle, from), t.put(bucketAddresses, serviceKey(h.To), value))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.unallocated(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range out {
		delete(s.addresses, h.From.Key)
		delete(s.idle, h.From.Key)
		s.addresses[h.To] = h.From.Addresses
	}
	return out, nil
}
