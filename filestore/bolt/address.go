package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/registry"
)

// The ranges of virtual addresses: Istio's for ServiceEntries. Both are reserved and routed nowhere.
const (
	range4 = "240.240.0.0/16"
	range6 = "2001:2::/48"
	// hosts4 counts the addresses of range4 without the first and the last one, which some systems take for a
	// network and a broadcast address.
	hosts4 = 1<<16 - 2
)

// ErrExhausted says that every virtual IPv4 address is allocated.
var ErrExhausted = errors.New("all 65534 virtual addresses of 240.240.0.0/16 are allocated")

// Allocate returns the virtual addresses of every key, an IPv4 and an IPv6 one. A key that has none gets
// the next free ones after a place that its hash chooses; from then on they are its own for ever, on
// every replica that shares the store. All new ones are written at once. With an error, the keys that
// are in the result have their addresses all the same.
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
	var full error
	err := s.update(func(t *tx) error {
		for _, k := range missing {
			a, err := allocate(t, k)
			if errors.Is(err, ErrExhausted) {
				full = fmt.Errorf("%w: remove ServiceEntries that are not needed, or give %s and the like their own addresses", err, k.Host)
				break
			}
			if err != nil {
				return err
			}
			fresh[k] = a
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
	}
	return out, full
}

// known fills out with the addresses that keys have, and returns the keys without.
func (s *Store) known(keys []registry.Key, out map[registry.Key][]netip.Addr) []registry.Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var missing []registry.Key
	for _, k := range keys {
		if a, ok := s.addresses[k]; ok {
			out[k] = a
		} else {
			missing = append(missing, k)
		}
	}
	return missing
}

// allocate finds and takes free addresses for k.
func allocate(t *tx, k registry.Key) ([]netip.Addr, error) {
	key := serviceKey(k)
	hash := sha256.Sum256(key)
	v4, err := free(t, hosts4, binary.BigEndian.Uint64(hash[:]), address4)
	if err != nil {
		return nil, err
	}
	v6, err := free(t, 1<<63, binary.BigEndian.Uint64(hash[8:]), address6)
	if err != nil {
		return nil, err
	}
	out := []netip.Addr{v4, v6}
	for _, a := range out {
		if err := t.put(bucketTaken, a.AsSlice(), key); err != nil {
			return nil, err
		}
	}
	return out, t.put(bucketAddresses, key, slices.Concat(v4.AsSlice(), v6.AsSlice()))
}

// free returns the first address that is not taken, of n, from place start on.
func free(t *tx, n, start uint64, address func(uint64) netip.Addr) (netip.Addr, error) {
	for i := range n {
		a := address((start%n + i) % n)
		taken, err := t.get(bucketTaken, a.AsSlice())
		if err != nil || taken == nil {
			return a, err
		}
	}
	return netip.Addr{}, ErrExhausted
}

// address4 is the i-th address of range4, from 0.
func address4(i uint64) netip.Addr {
	b := netip.MustParsePrefix(range4).Addr().As4()
	binary.BigEndian.PutUint16(b[2:], uint16(i+1))
	return netip.AddrFrom4(b)
}

// address6 is the i-th address of range6, from 0.
func address6(i uint64) netip.Addr {
	b := netip.MustParsePrefix(range6).Addr().As16()
	binary.BigEndian.PutUint64(b[8:], i+1)
	return netip.AddrFrom16(b)
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
