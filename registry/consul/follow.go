package consul

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// follower asks the same thing again and again.
type follower struct {
	// what names it for people.
	what string
	// tell takes in why it cannot be asked for; nil: it can again. The goroutine of keeper.loop calls it.
	tell func(*trouble)
	// ask asks for what there is after index, and returns what is to be done with the answer. Its context ends with the wait.
	ask func(ctx context.Context, index uint64) (answer, func(verdict) error, error)
	// gap is how long to leave between an answer and the next question besides what pacer does; nil: none.
	gap func() time.Duration
	// leads says that others come back when this one does.
	leads bool
	// heard is when there was an answer last, from which silence is counted; nil: from the first question without one.
	heard func() time.Time
	// before is the index from before the start, of what was kept: an answer with a lower one comes from a Consul that counts anew. Zero:
	// nobody knows it.
	before uint64
	// stop ends a wait, and has the next question not wait; nil: nobody does.
	stop *interrupts
}

const (
	// toldAfter is the number of failures in a row of which the source tells: one alone may be a connection that was closed.
	toldAfter = 2
	// leadBackoff is the longest wait of a follower that leads.
	leadBackoff = 2 * time.Second
	// pollGap is how often is asked what has no index to wait by.
	pollGap = 2 * time.Second
	// doubts is how often an index that went back has to be seen where any server may answer: one of them may just be late.
	doubts = 3
)

// errLost is about answers of servers that may be old.
var errLost = errors.New("the server that answered knows of no leader, so that its answer may be old")

// errAgain is about a wait that was interrupted.
var errAgain = errors.New("ask again")

// interruptible asks, until it is interrupted.
func (f *follower) interruptible(ctx context.Context, index uint64) (answer, func(verdict) error, error) {
	if f.stop == nil {
		return f.ask(ctx, index)
	}
	held, cancel := f.stop.hold(ctx)
	defer cancel()
	a, use, err := f.ask(held, index)
	if f.stop.interrupted() {
		return answer{}, nil, errAgain
	}
	return a, use, err
}

// follow asks until ctx ends.
func (k *keeper) follow(ctx context.Context, f follower) {
	var (
		g        guard
		pace     pacer
		failures int
		began    time.Time // the first of them in a row
		doubted  int
		again    bool
	)
	for pace.wait(ctx) == nil {
		index := g.index
		if failures > 0 || again {
			index = 0 // what waits for a change does not say that Consul is back
		}
		a, use, err := f.interruptible(ctx, index)
		if ctx.Err() != nil {
			return
		}
		if again = errors.Is(err, errAgain); again {
			continue
		}
		if err == nil && a.lost {
			err = errLost
		}
		last := g.index
		if err == nil {
			v := g.take(a.index)
			if v == newer && a.index < f.before {
				v, g.index = restarted, 0
			}
			if v == restarted && k.o.Reads != readsDefault && k.o.Reads != readsConsistent && doubted+1 < doubts {
				doubted++
				g.index = last
				pace.took(time.Now(), firstBackoff)
				continue
			}
			doubted = 0
			if v == newer && failures > 0 {
				v = returned
			}
			if err = use(v); err != nil {
				g.index = 0
			} else {
				f.before = 0
			}
		}
		if err != nil {
			if failures++; failures == 1 {
				began = f.since(err)
			}
			k.failed(ctx, f, failures, began, err)
			continue
		}
		if failures > 0 {
			k.recovered(ctx, f, failures)
		}
		failures = 0
		pace.took(time.Now(), a.cost)
		if a.index == 0 {
			pace.next = time.Now().Add(pollGap)
		}
		if f.gap != nil {
			pace.next = later(pace.next, time.Now().Add(f.gap()))
		}
	}
}

// since is of when that is what is known, when it is asked for with an error for the first time.
func (f *follower) since(err error) time.Time {
	if f.heard != nil && silent(err) {
		return f.heard()
	}
	return time.Now()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// failed tells of a failure, of those in a row since began, and waits until it is time to try again.
func (k *keeper) failed(ctx context.Context, f follower, failures int, began time.Time, err error) {
	if busy(err) && k.slots.refused(time.Now()) {
		k.tell(ctx, k.yield)
	}
	back := k.back.wait()
	if failures >= toldAfter {
		text := k.client.explain(err)
		if errors.Is(err, errLost) || errors.Is(err, errHidden) || errors.Is(err, errOwnUnread) || errors.Is(err, errNone) {
			text = "Consul at " + k.o.Address + ": " + err.Error()
		}
		t := &trouble{text: text, since: began, noticed: time.Now(), answered: answered(err), silent: silent(err), ofFilter: k.client.misfiltered(err)}
		if !t.ofFilter && !t.silent {
			t.text += " (" + f.what + ")"
		}
		k.tell(ctx, func() { f.tell(t) })
	}
	wait := backoff(failures)
	if f.leads {
		wait = min(wait, leadBackoff)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-back:
		_ = sleep(ctx, rand.N(300*time.Millisecond)) // not all at once; the caller sees whether ctx ended
	}
}

// recovered tells that a follower has an answer again.
func (k *keeper) recovered(ctx context.Context, f follower, failures int) {
	if failures >= toldAfter {
		k.tell(ctx, func() { f.tell(nil) })
	}
	if f.leads {
		k.back.wake()
	}
}
