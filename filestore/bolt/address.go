package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// Allocate returns the virtual addresses of every key, an IPv4 and an IPv6 one. A key that has none gets
// the next free ones after a place that its hash chooses; from then on they are its own, until Reuse. What
// was idle is not any more. All new ones are written at once. With an error, the keys that are in the
// result have their addresses all the same.
func (s *Store) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	out := make(map[registry.Key][]netip.Addr, len(keys))
	missing := s.known(keys, out)
	if len(missing) == 0 {
		return out, nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return out, err
	}
	missing = s.known(missing, out) // another caller may have been faster
	// in one order, so that it does not matter who asks first within a call
	slices.SortFunc(missing, registry.Key.Compare)
	missing = slices.Compact(missing)
	if len(missing) == 0 {
		return out, nil
	}
	fresh := make(map[registry.Key][]netip.Addr, len(missing))
	taken := s.takenAddresses()
	var full error
	err := s.update(func(t *tx) error {
		for _, k := range missing {
			if a := s.addresses[k]; a != nil { // it was idle
				if err := t.delete(bucketIdle, serviceKey(k)); err != nil {
					return err
				}
				fresh[k] = a
				continue
			}
			if full != nil {
				continue
			}
			a, err := allocate(t, taken, k)
			if errors.Is(err, virtualip.ErrExhausted) {
				full = fmt.Errorf("%w: give %s and the like their own addresses, or set virtualAddresses: none for a source whose services need none", err, k.Host)
				continue
			}
			if err != nil {
				return err
			}
			fresh[k] = a
			taken[a[0]], taken[a[1]] = true, true
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("keep virtual addresses in %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, a := range fresh {
		s.addresses[k], out[k] = a, a
		delete(s.idle, k)
	}
	return out, full
}

// takenAddresses lists the addresses that are allocated. Callers hold s.writing.
func (s *Store) takenAddresses() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, 2*len(s.addresses))
	for _, list := range s.addresses {
		for _, a := range list {
			out[a] = true
		}
	}
	return out
}

// known fills out with the addresses that keys have, and returns the keys without, and those that are idle.
func (s *Store) known(keys []registry.Key, out map[registry.Key][]netip.Addr) []registry.Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var missing []registry.Key
	for _, k := range keys {
		if a, ok := s.addresses[k]; ok && s.idle[k].IsZero() {
			out[k] = a
		} else {
			missing = append(missing, k)
		}
	}
	return missing
}

// allocate finds free addresses for k and writes them. Errors: virtualip.ErrExhausted.
func allocate(t *tx, taken map[netip.Addr]bool, k registry.Key) ([]netip.Addr, error) {
	key := serviceKey(k)
	v4, v6, err := virtualip.Choose(string(key), len(taken)/2, func(a netip.Addr) bool { return taken[a] }) // two for each service
	if err != nil {
		return nil, err
	}
	return []netip.Addr{v4, v6}, t.put(bucketAddresses, key, slices.Concat(v4.AsSlice(), v6.AsSlice()))
}

func serviceKey(k registry.Key) []byte { return []byte(k.Host + "\x00" + k.Namespace) }

// parseAddresses reads a record of addresses.
func parseAddresses(v []byte) ([]netip.Addr, error) {
	if len(v) != 4+16 {
		return nil, fmt.Errorf("a record of addresses has %d bytes", len(v))
	}
	v = bytes.Clone(v)
	return []netip.Addr{netip.AddrFrom4([4]byte(v[:4])), netip.AddrFrom16([16]byte(v[4:]))}, nil
}
