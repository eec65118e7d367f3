package consul

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// instancesOf follows the instances of one service.
// before has what was said of it before it is asked for.
func (k *keeper) instancesOf(ctx context.Context, sc *scope, s *service, before before) follower {
	w := &watch{k: k, at: sc.at, few: sc.few, s: s, had: before.had, port: before.port}
	return follower{
		what: sc.at.key("service " + s.name), tell: func(t *trouble) { k.fails(sc, s, t) },
		ask: func(ctx context.Context, index uint64) (answer, func(verdict) error, error) {
			entries, a, err := w.ask(ctx, index)
			return a, func(v verdict) error {
				w.changed = v == newer && index != 0
				if len(entries) == 0 && w.had > 0 && k.hides(a) { // first: another token changes no index
					k.tell(ctx, func() { s.missed, s.hidden = time.Time{}, time.Now() })
					return errHidden
				}
				if len(entries) > 0 && !slices.ContainsFunc(entries, isInstance) {
					return errNoInstance
				}
				if v == same && w.sure && !a.fresh {
					return nil // some changes raise no index: it may be from before one that is known
				}
				if w.sure = a.fresh; len(entries) > 0 || !v.doubtful() { // what is doubted takes nothing back
					w.had = len(entries)
				}
				said := converter{o: k.o, at: sc.at, name: s.name, former: w.port}.convert(entries).from(k.source)
				said.index = a.index
				w.port = said.main
				k.tell(ctx, func() {
					switch {
					case sc.services[s.name] != s: // it has gone meanwhile
					case s.unlisted && len(entries) == 0 && (!s.missed.IsZero() || !v.doubtful() && s.pending == nil): // not even a token could hide it
						k.absent(sc, s, a.at)
					case len(entries) == 0 && len(s.items) > 0 && (v.doubtful() || s.pending != nil):
						k.doubt(sc, s, said)
					default:
						k.lagged(a.lag)
						k.set(sc, s, said, a.at)
						sc.pokeLate(s, a)
					}
				})
				return nil
			}, err
		},
	}
}

// watch is one service that is followed; one goroutine owns it.
type watch struct {
	k       *keeper
	at      place
	few     *seats // of the scope
	s       *service
	changed bool   // with the last answer
	had     int    // instances
	sure    bool   // the last answer was the leader's
	port    uint32 // at which clients reach it; see converted
}

func isInstance(e *api.ServiceEntry) bool { return e != nil && e.Node != nil && e.Service != nil }

// before is what was said of a service before it is asked for: by Consul some time ago, or before the start.
type before struct {
	had  int    // it has something that stands in for what Consul says
	port uint32 // at which clients reached it; zero: nobody knows
}

// before is that of a service.
func (k *keeper) before(s *service) before {
	items, out := s.items, before{port: s.said.main}
	if len(items) == 0 {
		items = k.kept[s.group].Items
	}
	out.had = len(items)
	if out.port == 0 && len(items) > 0 && len(items[0].Service.Ports) == 1 {
		out.port = items[0].Service.Ports[0].Number
	}
	return out
}

const (
	// lateTries and lateGap are how often, and how long apart at most, an answer is asked for again that is older than a change that was
	// told of elsewhere.
	lateTries, lateGap = 20, 25 * time.Millisecond
)

// ask asks for what there is after index: by a query that waits, where there is a connection for it; else when there is a
// reason to.
func (w *watch) ask(ctx context.Context, index uint64) ([]*api.ServiceEntry, answer, error) {
	if index == 0 {
		return w.fetch(ctx, w.s.pokes.take())
	}
	for {
		if !w.s.pokes.urgent(index) {
			if wait, ok := w.k.slots.take(w.changed); ok {
				entries, a, err := w.wait(ctx, index, wait)
				w.k.slots.give()
				if ctx.Err() != nil || !w.s.stop.interrupted() {
					return entries, a, err
				}
				w.changed = false
				w.s.pokes.poke(false, 0) // whoever interrupted it wants it looked at
			}
		}
		whole, atLeast, ok := w.sleep(ctx)
		if !ok {
			return nil, answer{}, ctx.Err()
		}
		w.s.stop.interrupted() // there was no wait to end
		if !whole {
			now, err := w.look(ctx)
			if err != nil {
				w.s.pokes.poke(false, 0) // after the failure
				return nil, answer{}, err
			}
			if now == index {
				continue
			}
			atLeast = max(atLeast, now)
		}
		return w.fetch(ctx, atLeast)
	}
}

// sleep waits until there is a reason to ask, or for as long as a query would wait: some changes Consul tells nobody of, such as
// that another token reads more.
func (w *watch) sleep(ctx context.Context) (whole bool, atLeast uint64, ok bool) {
	defer time.AfterFunc(longWait+rand.N(longWait/16), func() { w.s.pokes.poke(true, ofLeader) }).Stop()
	return w.s.pokes.wait(ctx)
}

// wait asks for what there is after index, for so long or until it is interrupted.
func (w *watch) wait(ctx context.Context, index uint64, wait time.Duration) ([]*api.ServiceEntry, answer, error) {
	ctx, cancel := w.s.stop.hold(ctx)
	defer cancel()
	return w.k.client.instances(ctx, query{place: w.at, index: index, wait: wait, filter: w.k.o.instanceFilter()}, w.s.name)
}

// look asks for the index of the service alone.
func (w *watch) look(ctx context.Context) (uint64, error) {
	if err := w.few.take(ctx); err != nil {
		return 0, err
	}
	defer w.few.give()
	_, a, err := w.k.client.instances(ctx, query{place: w.at, filter: nothing, fresh: true}, w.s.name)
	return a.index, err
}

// fetch asks for what there is now; the answer is not older than atLeast unless Consul keeps to an older one.
func (w *watch) fetch(ctx context.Context, atLeast uint64) ([]*api.ServiceEntry, answer, error) {
	if err := w.few.take(ctx); err != nil {
		return nil, answer{}, err
	}
	defer w.few.give()
	q := query{place: w.at, filter: w.k.o.instanceFilter(), fresh: atLeast > 0}
	for try := 1; ; try++ {
		entries, a, err := w.k.client.instances(ctx, q, w.s.name)
		if err == nil && len(entries) == 0 && !q.fresh && w.k.o.late() { // of a service that there is: it may be from before it was
			q.fresh = true
			if now, newer, err := w.k.client.instances(ctx, q, w.s.name); err == nil {
				entries, a = now, newer
			}
		}
		if err != nil || a.index >= atLeast || try == lateTries {
			if err != nil && atLeast > 0 {
				w.s.pokes.poke(true, atLeast) // after the failure
			}
			return entries, a, err
		}
		if err := sleep(ctx, min(lateGap, time.Millisecond<<try)); err != nil {
			return nil, answer{}, err
		}
	}
}
