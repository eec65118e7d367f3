package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// namesGap is the least time between two answers with the names of all services: Consul goes through all instances for one.
	namesGap = 500 * time.Millisecond
	// filteredWait is how long a token that does not read everything is waited with: another one may be there by then.
	filteredWait = 5 * time.Second
	// looks is how many services at most are looked at in a second because some registration has changed.
	looks = 500
)

// errHidden is about what the token may not read any more.
var errHidden = errors.New("the token reads nothing any more of what it read before: give it node:read and service:read for that again; " +
	"if it is gone for good, or not to be read any more, say so by the option emptied: believe")

// errNoInstance is about an answer with nothing in it that is an instance.
var errNoInstance = errors.New("the answer has instances without node or service: is it the address of Consul's HTTP interface?")

// key names something of a place, for people; that of the agent's own datacenter is not said.
func (p place) key(what string) string {
	if of := strings.TrimSuffix(p.group(""), "/"); of != "" {
		return what + " of " + of
	}
	return what
}

// hides says that what is not in an answer may be hidden by the token rather than gone.
func (k *keeper) hides(a answer) bool { return a.filtered && k.o.Emptied != emptiedBelieve }

// namesOf follows the names of all services of a place.
func (k *keeper) namesOf(ctx context.Context, sc *scope) follower {
	var had []string
	var filtered, anew bool // anew: Consul counts anew since the last answer that was taken in
	var stopped early
	var last uint64 // index of the last answer, taken in or not
	return follower{
		what: sc.at.key(askNames), tell: func(t *trouble) { k.heardOf(sc, askNames, t) }, leads: true, stop: sc.names, before: sc.before,
		ask: func(held context.Context, index uint64) (answer, func(verdict) error, error) {
			var names []string
			var waited time.Duration
			a, err := k.inTurn(held, func(wait time.Duration) (a answer, err error) {
				if filtered {
					wait = min(wait, filteredWait)
				}
				waited = wait
				names, a, err = k.client.services(held, query{place: sc.at, index: index, wait: wait, filter: k.o.nameFilter()})
				return a, err
			})
			return a, func(v verdict) error {
				slices.Sort(names)
				anew = anew || v == restarted || a.fresh && a.index < last
				last = a.index
				if v == same && slices.Equal(names, had) && a.filtered == filtered { // another token would read others
					if index == 0 {
						k.tell(ctx, func() { k.confirm(sc, a) })
					} else if stopped.before(a.at.Sub(a.asked), waited) {
						k.recheckAll(ctx, sc) // a restoration ends it too, and the beat may have been between two waits
					}
					return nil
				}
				if anew {
					v = restarted
				}
				if len(names) == 0 && len(had) > 0 && k.hides(a) && !k.denied(ctx, sc, a, v) {
					return errHidden
				}
				had, filtered, anew = names, a.filtered, false
				none := k.unchosen(ctx, sc, names)
				k.tell(ctx, func() {
					sc.unchosen = none
					k.listed(ctx, sc, names, a, v)
				})
				return nil
			}, err
		},
		gap: func() time.Duration {
			if !k.slots.isCrowded() {
				return namesGap
			}
			return max(namesGap, time.Duration(len(had))*time.Second/looks)
		},
	}
}

// listed takes in which services there are.
func (k *keeper) listed(ctx context.Context, sc *scope, names []string, a answer, v verdict) {
	there := make(map[string]bool, len(names))
	for _, name := range names {
		if k.o.counts(name) {
			there[name] = true
		}
	}
	k.lagged(a.lag)
	if v == restarted {
		sc.recount(a.index)
	}
	added := map[*service]before{}
	sc.doubted, sc.answered, sc.mark = false, time.Now(), k.mark(a.index)
	k.leave(sc, there, a, v)
	if !sc.listed {
		for _, s := range k.recall(sc, there, a, v) {
			sc.services[s.name], added[s] = s, k.before(s)
		}
	}
	if v == restarted {
		k.remark(sc, a.index)
	}
	for name := range there {
		if sc.services[name] == nil {
			s := sc.newService(name)
			sc.services[name] = s
			k.find(sc, s)
			if !askable(name) {
				k.judge(sc, s, a.at)
				continue
			}
			added[s] = k.before(s)
		}
	}
	sc.listed, sc.stoodIn, k.dirty = true, false, true
	k.tellLost(sc)
	k.tellUnchosen(sc)
	k.tellHidden(sc, there, a)
	k.crowd()
	for s, before := range added {
		one, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		k.start(one, func(ctx context.Context) { k.follow(ctx, k.instancesOf(ctx, sc, s, before)) })
	}
	k.wonder(sc, added, v == same || v == restarted)
}

// wonder has the services of a place asked for, besides those that are added and asked for anyway: a registration has changed, and in a
// crowd nobody says whose; or no index tells (mute), as another token reads others, or Consul counts anew and may have come to the same
// index by something else.
func (k *keeper) wonder(sc *scope, added map[*service]before, mute bool) {
	if !mute && !k.slots.isCrowded() {
		return
	}
	for _, s := range sc.services {
		if _, new := added[s]; new {
			continue
		}
		if mute {
			s.askAnew()
		} else {
			s.pokes.poke(false, 0)
		}
	}
}

// leave takes in which of the services are not there any more.
func (k *keeper) leave(sc *scope, there map[string]bool, a answer, v verdict) {
	emptied := k.emptied(sc, there, v)
	for name, s := range sc.services {
		if there[name] {
			s.unlisted, s.missed = false, time.Time{}
			sc.resolve(s, a)
			continue
		}
		if emptied && s.missed.IsZero() {
			s.missed = sc.namesSince(a)
		}
		if k.hides(a) {
			k.unlist(sc, s, a.at)
		} else {
			k.absent(sc, s, a.at)
		}
	}
}

// namesSince is since when the names are not known that came with an answer.
func (sc *scope) namesSince(a answer) time.Time {
	if t := sc.mute(); t != nil {
		return t.since
	}
	return a.at
}

// unlist has a service asked for by itself that is not among the names, where the token does not read all of them: Consul says
// of one that it has whether the token hides it.
func (k *keeper) unlist(sc *scope, s *service, at time.Time) {
	switch {
	case len(s.items) == 0 || s.pending != nil: // it was asked for, and is not hidden
		k.absent(sc, s, at)
	case !s.unlisted:
		s.unlisted = true
		s.pokes.poke(true, 0)
		s.stop.interrupt()
	}
}

// tellHidden tells that the token does not read all services, unless those are there that the settings name.
func (k *keeper) tellHidden(sc *scope, there map[string]bool, a answer) {
	named := len(k.o.Services) > 0
	for _, name := range k.o.Services {
		named = named && there[name]
	}
	if !a.filtered || named {
		k.notify(sc.hiddenNotice, nil, time.Time{})
		return
	}
	if sc.hiddenNotice.problem == nil {
		k.notify(sc.hiddenNotice, &feed.Problem{
			Severity: feed.Warning, Object: sc.at.title(), Since: a.at,
			Text: fmt.Sprintf("the token does not read all services of Consul at %s: those that it does not are no part of the mesh; "+
				"give it node:read and service:read for all (tokenFile: %s), or name those that count in the option services", k.o.Address, cmp.Or(k.o.TokenFile, "none is set")),
		}, time.Time{})
	}
}

// gone takes in that there is no such service any more.
func (k *keeper) gone(sc *scope, s *service, at time.Time) {
	s.cancel()
	k.mended(sc, s)
	delete(sc.services, s.name)
	k.set(sc, s, converted{}, at)
}
