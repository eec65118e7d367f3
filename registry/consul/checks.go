package consul

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"
)

// checkKey is one check of one node.
type checkKey struct{ node, id string }

// failing is one that does not pass.
type failing struct {
	service  string // empty: it is the node's
	modified uint64
}

// followChecks follows the checks of a place that are in a state, for as long as there are services that are not watched by
// themselves: what comes or goes there has changed their health.
func (k *keeper) followChecks(ctx context.Context, sc *scope, state string, stop *interrupts) {
	var was map[checkKey]failing
	what := askCritical
	if state == api.HealthWarning {
		what = askWarning
	}
	k.follow(ctx, follower{
		what: sc.at.key(what), tell: func(t *trouble) { k.heardOf(sc, what, t) }, stop: stop,
		ask: func(held context.Context, index uint64) (answer, func(verdict) error, error) {
			if !k.crowded(held) {
				return answer{}, nil, held.Err()
			}
			var list api.HealthChecks
			a, err := k.inTurn(held, func(wait time.Duration) (a answer, err error) {
				list, a, err = k.client.checks(held, query{place: sc.at, index: index, wait: wait, fresh: true}, state)
				return a, err
			})
			return a, func(v verdict) error {
				now := failingOf(list)
				all := was == nil
				touched := differing(was, now)
				if was = now; v == same && !all && len(touched) == 0 {
					return nil // a wait has ended
				}
				k.tell(ctx, func() { sc.poke(all, touched) })
				return nil
			}, err
		},
	})
}

// crowded waits until there are more services than can be watched by themselves; false: ctx has ended.
func (k *keeper) crowded(ctx context.Context) bool {
	for {
		next := k.crowds.wait()
		if k.slots.isCrowded() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-next:
		}
	}
}

func failingOf(list api.HealthChecks) map[checkKey]failing {
	out := make(map[checkKey]failing, len(list))
	for _, c := range list {
		if c != nil {
			out[checkKey{c.Node, c.CheckID}] = failing{c.ServiceName, c.ModifyIndex}
		}
	}
	return out
}

// differing are the checks that are in one of two sets alone, or were changed between them.
func differing(a, b map[checkKey]failing) map[checkKey]failing {
	out := map[checkKey]failing{}
	for k, f := range b {
		if a[k] != f {
			out[k] = f
		}
	}
	for k, f := range a {
		if _, ok := b[k]; !ok {
			out[k] = failing{service: f.service} // nobody says at which index it went
		}
	}
	return out
}

// poke has the services looked at that have such a check, or run on a node that has, and those that had one when they were
// asked for last: it may have come and gone between two answers. all: each of them, as nothing was known before. The
// goroutine of keeper.loop calls it.
func (sc *scope) poke(all bool, touched map[checkKey]failing) {
	sc.checked = time.Now()
	nodes := map[string]uint64{}
	for key, f := range touched {
		if f.service == "" {
			nodes[key.node] = max(nodes[key.node], f.modified)
		} else if s := sc.services[f.service]; s != nil {
			s.pokes.poke(true, f.modified)
		}
	}
	for _, s := range sc.services {
		if all || s.said.failing {
			s.pokes.poke(false, 0)
		}
		for _, n := range s.said.nodes {
			if index, ok := nodes[n]; ok {
				s.pokes.poke(true, index)
			}
		}
	}
}

// pokeLate has a service looked at again whose answer may not know yet of checks that were told of while it was on its way:
// whether they are about an instance of it could not be said before. The goroutine of keeper.loop calls it.
func (sc *scope) pokeLate(s *service, a answer) {
	if sc.checked.After(a.asked.Add(-a.lag)) {
		s.pokes.poke(false, 0)
	}
}
