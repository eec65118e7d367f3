package bolt

import (
	"bytes"
	"context"
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
	fresh, full := s.choose(missing)
	if len(fresh) == 0 {
		return out, full
	}
	err := s.update(func(t *tx) error {
		for _, k := range missing {
			if err := s.keepAddresses(t, k, fresh[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return out, s.unallocated(err)
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

// choose returns the addresses that keys are to have: free ones, or their own where they are idle. Callers hold s.writing.
// Errors: virtualip.ErrExhausted, for those that are left then.
func (s *Store) choose(keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	fresh, taken := make(map[registry.Key][]netip.Addr, len(keys)), s.takenAddresses()
	var full error
	for _, k := range keys {
		if a := s.addresses[k]; a != nil { // it was idle
			fresh[k] = a
			continue
		}
		if full != nil {
			continue
		}
		v4, v6, err := virtualip.Choose(string(serviceKey(k)), len(taken)/2, func(a netip.Addr) bool { return taken[a] }) // two for each service
		if err != nil {
			full = fmt.Errorf("%w: give %s and the like their own addresses, or set virtualAddresses: none for a source whose services need none", err, k.Host)
			continue
		}
		fresh[k] = []netip.Addr{v4, v6}
		taken[v4], taken[v6] = true, true
	}
	return fresh, full
}

// keepAddresses writes what choose chose for a key; nil: nothing.
func (s *Store) keepAddresses(t *tx, k registry.Key, a []netip.Addr) error {
	if a == nil {
		return nil
	}
	if s.addresses[k] != nil { // it was idle
		return t.delete(bucketIdle, serviceKey(k))
	}
	return t.put(bucketAddresses, serviceKey(k), slices.Concat(a[0].AsSlice(), a[1].AsSlice()))
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
