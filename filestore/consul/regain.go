package consul

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/registry"
)

// lostAddresses are those that hosts had before Consul's state was replaced by an older one, and that nobody has in that. Proxies
// use them still: nobody else is given one before its host has it back. Nil are none.
type lostAddresses struct {
	pairs map[registry.Key]pair
	taken map[netip.Addr]bool
}

// has says whether an address is one of them.
func (l *lostAddresses) has(a netip.Addr) bool { return l != nil && l.taken[a] }

// of is what a host had.
func (l *lostAddresses) of(k registry.Key) (pair, bool) {
	if l == nil {
		return pair{}, false
	}
	p, found := l.pairs[k]
	return p, found
}

// left are those that nobody has in a state either.
func (l *lostAddresses) left(now *state) *lostAddresses {
	if l == nil {
		return nil
	}
	out := &lostAddresses{pairs: map[registry.Key]pair{}, taken: map[netip.Addr]bool{}}
	for k, p := range l.pairs {
		if _, has := now.addresses.Get(k); !has && !now.taken.At(p.v4) && !now.taken.At(p.v6) {
			out.pairs[k], out.taken[p.v4], out.taken[p.v6] = p, true, true
		}
	}
	if len(out.pairs) == 0 {
		return nil
	}
	return out
}

// commit gives them back, as far as they are free in a state; nil: there is nothing to give.
func (l *lostAddresses) commit(now *state) *commit {
	l = l.left(now)
	if l == nil {
		return nil
	}
	c := &commit{}
	for _, k := range slices.SortedFunc(maps.Keys(l.pairs), registry.Key.Compare) {
		c.Addresses = append(c.Addresses, addressesOf(k, l.pairs[k]))
	}
	return c
}

// lose finds out which addresses hosts have lost by a state that was made anew of what Consul holds, and has them given back. Its
// caller has the turn. In one log a host loses its addresses to another host alone.
func (s *Store) lose(old, next *state) {
	if next.generation == old.generation {
		if s.lost = s.lost.left(next); someMoved(old, next) {
			wake(s.movedAddresses)
		}
		return
	}
	lost, moved := &lostAddresses{pairs: map[registry.Key]pair{}}, old.Log != "" && old.Log != next.Log
	if s.lost != nil {
		maps.Copy(lost.pairs, s.lost.pairs)
	}
	if old.Log == next.Log {
		for c := range next.addresses.Diff(old.addresses) {
			if c.HadOld && (!c.HasNew || !c.New.same(c.Old)) {
				lost.pairs[c.Key], moved = c.Old, true
			}
		}
	}
	if s.lost = lost.left(next); moved {
		wake(s.regain)
	}
}

// regainer gives hosts back what they have lost whenever Consul's state was replaced, until ctx ends, and says then that this is
// done.
func (s *Store) regainer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.regain:
		}
		for s.giveBack(ctx) != nil && sleep(ctx, mostWait) == nil {
			continue
		}
		wake(s.movedAddresses)
	}
}

// giveBack gives hosts back what they have lost. Errors: those of propose.
func (s *Store) giveBack(ctx context.Context) error {
	given := 0
	_, err := s.propose(ctx, true, func(known *state) (*commit, error) {
		c := s.lost.commit(known)
		if given = 0; c != nil {
			given = len(c.Addresses)
		}
		return c, nil
	})
	if err != nil {
		s.cfg.Log.Debug("hosts do not have the virtual addresses back that the state of Consul does not know any more", "error", err)
	} else if given > 0 {
		s.cfg.Log.Info("hosts have the virtual addresses back that the state of Consul did not know any more", "hosts", given)
	}
	return err
}

// someMoved says whether a host has not the addresses any more that it had in a state before.
func someMoved(old, next *state) bool {
	for c := range next.addresses.Diff(old.addresses) {
		if c.HadOld && (!c.HasNew || !c.New.same(c.Old)) {
			return true
		}
	}
	return false
}

// Moved tells when hosts have lost addresses to others, or Consul's state was replaced by one that has others, after those that were
// free were given back: who uses addresses of Allocate compares them with Allocations.
func (s *Store) Moved() <-chan struct{} { return s.movedAddresses }

// wake wakes who reads c, unless there is word already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
