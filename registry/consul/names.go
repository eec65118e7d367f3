package consul

import (
	"context"
	"errors"
	"time"
)

const (
	// namesGap is the least time between two answers with the names of all services: Consul goes through all instances for one.
	namesGap = 500 * time.Millisecond
	// looks is how many services at most are looked at in a second because some registration has changed.
	looks = 500
)

// errHidden is about what the token may not read any more.
var errHidden = errors.New("the token reads nothing any more of what it read before")

// key names something of a place, for people; that of the agent's own datacenter is not said.
func (p place) key(what string) string {
	if p.group("") == "" {
		return what
	}
	return what + " of " + p.group("")
}

// namesOf follows the names of all services of a place.
func (k *keeper) namesOf(ctx context.Context, sc *scope) follower {
	var had int
	return follower{
		key: sc.at.key(keyNames), leads: true, stop: sc.names,
		ask: func(held context.Context, index uint64) (answer, func(verdict) error, error) {
			names, a, err := k.client.services(held, query{place: sc.at, index: index, wait: longWait, filter: k.o.nameFilter()})
			return a, func(v verdict) error {
				if v == same && index == 0 {
					k.tell(ctx, func() { k.confirm(sc, a.at) })
				}
				if v == same {
					return nil
				}
				if len(names) == 0 && had > 0 && a.filtered {
					return errHidden
				}
				had = len(names)
				k.tell(ctx, func() { k.listed(ctx, sc, names, a, v) })
				return nil
			}, err
		},
		gap: func() time.Duration {
			if !k.slots.isCrowded() {
				return namesGap
			}
			return max(namesGap, time.Duration(had)*time.Second/looks)
		},
	}
}

// listed takes in which services there are.
func (k *keeper) listed(ctx context.Context, sc *scope, names []string, a answer, v verdict) {
	there := make(map[string]bool, len(names))
	added := map[*service]bool{}
	for _, name := range names {
		if !k.o.counts(name) {
			continue
		}
		there[name] = true
	}
	if !sc.listed {
		k.recall(sc, there)
	}
	sc.doubted = false
	leave := func(s *service) { k.gone(sc, s, a.at) }
	if k.emptied(sc, there, v) {
		leave = func(s *service) { k.lose(sc, s) }
	}
	for name, s := range sc.services {
		if !there[name] {
			leave(s)
		} else if s.pending != nil {
			k.set(sc, s, *s.pending, a.at)
		}
	}
	for name := range there {
		if sc.services[name] == nil {
			s := newService(sc.at, name)
			sc.services[name] = s
			sc.find(s)
			added[s] = true
		}
	}
	sc.listed = true
	k.tellLost(sc, a.at)
	k.stands.lag = a.lag
	k.crowd()
	for s := range added {
		one, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		k.start(one, func(ctx context.Context) { k.follow(ctx, k.instancesOf(ctx, sc, s)) })
	}
	if k.slots.isCrowded() { // a registration has changed, and nobody says whose
		for _, s := range sc.services {
			if !added[s] { // which is asked for anyway
				s.pokes.poke(false, 0)
			}
		}
	}
}

// gone takes in that there is no such service any more.
func (k *keeper) gone(sc *scope, s *service, at time.Time) {
	s.cancel()
	delete(sc.services, s.name)
	k.stands.well(sc.at.key(keyInstance + s.name))
	k.set(sc, s, converted{}, at)
}
