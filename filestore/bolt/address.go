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
	taken := s.takenAddresses()
	var full error
	err := s.update(func(t *tx) error {
		for _, k := range missing {
			a, err := allocate(t, taken, k)
			if errors.Is(err, ErrExhausted) {
				full = fmt.Errorf("%w: remove ServiceEntries that are not needed, or give %s and the like their own addresses", err, k.Host)
				break
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

// allocate finds free addresses for k and writes them.
func allocate(t *tx, taken map[netip.Addr]bool, k registry.Key) ([]netip.Addr, error) {
	key := serviceKey(k)
	hash := sha256.Sum256(key)
	if len(taken)/2 >= hosts4 { // two for each service
		return nil, ErrExhausted
	}
	v4 := free(taken, hosts4, binary.BigEndian.Uint64(hash[:]), address4)
	v6 := free(taken, 1<<63, binary.BigEndian.Uint64(hash[8:]), address6)
	return []netip.Addr{v4, v6}, t.put(bucketAddresses, key, slices.Concat(v4.AsSlice(), v6.AsSlice()))
}

// free returns the first address that is not taken, of n, from place start on. There is one.
func free(taken map[netip.Addr]bool, n, start uint64, address func(uint64) netip.Addr) netip.Addr {
	a := address(start % n)
	for i := start % n; taken[a]; a = address(i) {
		i = (i + 1) % n
	}
	return a
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
