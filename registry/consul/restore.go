package consul

import (
	"context"
	"sync"
	"time"
)

// restorationsOf follows the restorations of Consul's state (consul snapshot restore). Consul ends waits with what there was
// before the restoration, or, of instances, does not end them; and who asks again waits for an index that was
// reached before and is not reached again for long. So somebody has to wait at all times to whom nothing else happens; where places
// are asked by turns, the waits are so short that the index is seen to have gone back; one that is longer, as it was begun before, ends
// when turns begin. It waits for moments alone, for it is the beat of its place.
func (k *keeper) restorationsOf(sc *scope) follower {
	var stopped early
	heard := time.Now()
	return follower{
		what: sc.at.key(askRestored), tell: func(t *trouble) { k.beat(sc, t) }, leads: true, heard: func() time.Time { return heard },
		ask: func(ctx context.Context, index uint64) (answer, func(verdict) error, error) {
			held, cancel := sc.restored.hold(ctx)
			defer cancel()
			var waited time.Duration
			a, err := k.inTurn(held, func(wait time.Duration) (answer, error) {
				waited = min(wait, beatGap)
				return k.client.restoration(held, query{place: sc.at, index: index, wait: waited})
			})
			if err == nil {
				heard = a.at
			}
			if sc.restored.interrupted() && err != nil { // an answer counts: what ended its wait may be a restoration
				return answer{}, nil, errAgain
			}
			return a, func(v verdict) error {
				if v == restarted || v == same && index != 0 && stopped.before(a.at.Sub(a.asked), waited) {
					k.log.Debug("Consul's state may have been restored: everything is looked at", "index", a.index, "before", index)
					k.recheckAll(ctx, sc)
				}
				return nil
			}, err
		},
	}
}

// recheckAll has everything of a place asked for again, now and later: a wait of it ended too early.
func (k *keeper) recheckAll(ctx context.Context, sc *scope) {
	k.tell(ctx, sc.recheck)
	k.start(ctx, func(ctx context.Context) { k.recheckLater(ctx, sc) })
}

// recheckLater looks at everything a few times more: for moments after a restoration parts of Consul, such as the agent's
// own view of instances, still answer with what there was before, and its index, which is not reached again for long.
func (k *keeper) recheckLater(ctx context.Context, sc *scope) {
	for _, after := range []time.Duration{time.Second, 4 * time.Second, 25 * time.Second} {
		if sleep(ctx, after) != nil {
			return
		}
		k.tell(ctx, sc.recheck)
	}
}

// recheck has everything of a place asked for again, what waits for a change too. The goroutine of keeper.loop calls it.
func (sc *scope) recheck() {
	sc.wake()
	sc.release()
}

// wake has what waits for a change of all services of a place asked for again.
func (sc *scope) wake() {
	for _, i := range []*interrupts{sc.names, sc.critical, sc.warning} {
		i.interrupt()
	}
}

// shorten is wake for the sake of turns, in which who waits for long leaves others none: the restorations are asked for again too.
func (sc *scope) shorten() {
	sc.wake()
	sc.restored.interrupt()
}

// release has all services looked at that wait for a change by themselves, and the others too.
func (sc *scope) release() {
	for _, s := range sc.services {
		s.pokes.poke(false, 0)
		s.stop.interrupt()
	}
}

// early tells waits that ended without a change before their time.
type early struct{ last time.Duration }

// before says whether a wait that took so long ended before its time, unless the one before that did took as long: that is
// then the longest that Consul allows (max_query_time).
func (e *early) before(took, wait time.Duration) bool {
	if took >= wait { // and up to a sixteenth more
		return false
	}
	usual := e.last > time.Second && took >= e.last*9/10 && took <= e.last*11/10
	e.last = took
	return !usual
}

// interrupts end waits. Safe for concurrent use.
type interrupts struct {
	mu sync.Mutex
	// the following are guarded by mu
	again bool               // it was interrupted
	stop  context.CancelFunc // ends the wait; nil: there is none
}

// interrupt ends the wait, or the next one.
func (i *interrupts) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.again = true
	if i.stop != nil {
		i.stop()
	}
}

// hold returns the context of a wait, which interrupt ends.
func (i *interrupts) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	ctx, i.stop = context.WithCancel(ctx)
	if i.again {
		i.stop()
	}
	return ctx, i.stop
}

// interrupted says, once, whether the wait was interrupted.
func (i *interrupts) interrupted() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.again
	i.again, i.stop = false, nil
	return was
}
