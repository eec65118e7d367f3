package consul

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// Allocate returns the virtual addresses of every key, an IPv4 and an IPv6 one. A key that has none gets the next free ones after a
// place that its hash chooses; from then on they are its own, on every replica, until Reuse. What was idle is not any more. All new ones
// are written at once. With an error, the keys that are in the result have their addresses all the same. It does not wait for a Consul
// that is known to be away. Errors: virtualip.ErrExhausted, ErrAway, ErrUnknown.
func (s *Store) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	out := make(map[registry.Key][]netip.Addr, len(keys))
	missing := s.state.Load().known(keys, out)
	if len(missing) == 0 {
		return out, nil
	}
	if why := s.standing.why(); why != nil {
		return out, fmt.Errorf("keep virtual addresses in the store %s: %w: %w", s.cfg.Options.Prefix, ErrAway, why)
	}
	// in one order, so that it does not matter who asks first within a call
	slices.SortFunc(missing, registry.Key.Compare)
	missing = slices.Compact(missing)
	var full error
	after, err := s.propose(ctx, false, func(known *state) (*commit, error) {
		var c *commit
		c, full = known.allocate(missing, s.lost)
		return c, nil
	})
	if err != nil {
		return out, fmt.Errorf("keep virtual addresses in the store %s: %w", s.cfg.Options.Prefix, err)
	}
	after.known(missing, out)
	return out, full
}

// known fills out with the addresses that keys have, and returns the keys without, and those that are idle.
func (s *state) known(keys []registry.Key, out map[registry.Key][]netip.Addr) []registry.Key {
	var missing []registry.Key
	for _, k := range keys {
		if p, ok := s.addresses.Get(k); ok && p.idle == 0 {
			out[k] = []netip.Addr{p.v4, p.v6}
		} else {
			missing = append(missing, k)
		}
	}
	return missing
}

// allocate chooses addresses for the keys that have none, but those that others have lost, and wakes those that are idle; nil: there are
// none of either.
// Errors: virtualip.ErrExhausted, for those that are left then.
func (s *state) allocate(keys []registry.Key, lost *lostAddresses) (*commit, error) {
	lost = lost.left(s)
	c, given := &commit{}, 0
	fresh := map[netip.Addr]bool{}
	taken := func(a netip.Addr) bool { return fresh[a] || s.taken.At(a) || lost.has(a) }
	var full error
	for _, k := range keys {
		if p, ok := s.addresses.Get(k); ok {
			if p.idle != 0 {
				c.Addresses = append(c.Addresses, addressesOf(k, pair{v4: p.v4, v6: p.v6}))
			}
			continue
		}
		if p, had := lost.of(k); had {
			c.Addresses = append(c.Addresses, addressesOf(k, pair{v4: p.v4, v6: p.v6}))
			given++
			continue
		}
		if full != nil {
			continue
		}
		v4, v6, err := virtualip.Choose(k.Host+"\x00"+k.Namespace, s.addresses.Len()+given, taken)
		if errors.Is(err, virtualip.ErrExhausted) {
			full = fmt.Errorf("%w: give %s and the like their own addresses, or set virtualAddresses: none for a source whose services need none", err, k.Host)
			continue
		}
		fresh[v4], fresh[v6] = true, true
		given++
		c.Addresses = append(c.Addresses, addressesOf(k, pair{v4: v4, v6: v6}))
	}
	if len(c.Addresses) == 0 {
		return nil, full
	}
	return c, full
}
