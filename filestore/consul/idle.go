package consul

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// manyHosts is how many hosts a change is of that is written by itself.
const manyHosts = 500

// Allocations are all hosts that have virtual addresses, as far as this replica knows.
func (s *Store) Allocations() iter.Seq[registry.Allocation] { return s.state.Load().allocations() }

func (s *state) allocations() iter.Seq[registry.Allocation] {
	return func(yield func(registry.Allocation) bool) {
		for k, p := range s.addresses.All() {
			if !yield(registry.Allocation{Key: k, Addresses: []netip.Addr{p.v4, p.v6}, Idle: p.since()}) {
				return
			}
		}
	}
}

// Retire notes that no source has keys any more since a time, as far as this replica knows: another one that has them asks for them
// by Allocate. They keep their addresses until Reuse gives them to others. What has no addresses, or is idle already, stays as it is.
func (s *Store) Retire(ctx context.Context, keys []registry.Key, since time.Time) error {
	_, err := s.propose(ctx, len(keys) > manyHosts, func(known *state) (*commit, error) { return known.retire(keys, since), nil })
	if err != nil {
		return fmt.Errorf("keep which hosts are gone in the store %s: %w", s.cfg.Options.Prefix, err)
	}
	return nil
}

// retire is the change that makes keys idle; nil: there is none.
func (s *state) retire(keys []registry.Key, since time.Time) *commit {
	c := &commit{}
	for _, k := range keys {
		if p, found := s.addresses.Get(k); found && p.idle == 0 {
			c.Addresses = append(c.Addresses, addressesOf(k, pair{p.v4, p.v6, since.Unix()}))
		}
	}
	if len(c.Addresses) == 0 {
		return nil
	}
	return c
}

// Reuse gives the addresses of idle hosts to those of keys that have none, those first that have been idle for longest, and returns
// what was given: less than was asked for where there are not enough. It takes those alone that have been idle since the very time
// that idle says. No two replicas give the same.
func (s *Store) Reuse(ctx context.Context, keys []registry.Key, idle map[registry.Key]time.Time) ([]registry.Handover, error) {
	var out []registry.Handover
	_, err := s.propose(ctx, len(keys) > manyHosts, func(known *state) (*commit, error) {
		out = registry.HandOver(known.allocations(), keys, idle)
		return handOver(out), nil
	})
	if err != nil {
		return nil, fmt.Errorf("keep virtual addresses in the store %s: %w", s.cfg.Options.Prefix, err)
	}
	return out, nil
}

// handOver is the change that has hosts take over the addresses of others; nil: there is none.
func handOver(list []registry.Handover) *commit {
	if len(list) == 0 {
		return nil
	}
	c := &commit{}
	for _, h := range list {
		from := h.From
		c.Homeless = append(c.Homeless, serviceName{from.Key.Host, from.Key.Namespace})
		c.Addresses = append(c.Addresses, addressesOf(h.To, pair{v4: from.Addresses[0], v6: from.Addresses[1]}))
	}
	return c
}
