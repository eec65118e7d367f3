package entry

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// errUnderWay says that the store was asked and has not answered.
var errUnderWay = errors.New("the store has not answered yet")

// errNone says that the store answered without an address.
var errNone = errors.New("the store gave none")

// allocator asks Addresses in a goroutine of its own, so that nobody waits for a disk. It is an
// Addresses itself that answers at once with what it knows. Safe for concurrent use.
type allocator struct {
	addresses Lender        // set once
	retry     time.Duration // set once

	wake chan struct{} // cap 1; written by Allocate, read by run

	mu    sync.Mutex                    // guards the following
	known map[registry.Key][]netip.Addr // the answers, of what is in use
	asked map[registry.Key]error        // what is not known: errUnderWay, or why it was refused the last time
	gone  []registry.Key                // what was not in use any more at some time; addresses does not know that yet
	moved []registry.Key                // what lost its addresses; taken by lost
	busy  bool                          // addresses is asked at this moment
}

func newAllocator(addresses Lender, retry time.Duration) *allocator {
	return &allocator{
		addresses: addresses,
		retry:     retry,
		wake:      make(chan struct{}, 1),
		known:     map[registry.Key][]netip.Addr{},
		asked:     map[registry.Key]error{},
	}
}

// Allocate implements Addresses. What is not known is asked for; until the answer the error is
// errUnderWay, and after a refusal it is that.
func (a *allocator) Allocate(_ context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[registry.Key][]netip.Addr, len(keys))
	var missing error
	for _, k := range keys {
		if addresses, ok := a.known[k]; ok {
			out[k] = addresses
			continue
		}
		why, ok := a.asked[k]
		if !ok {
			why = errUnderWay
			a.asked[k] = why
			a.awake()
		}
		if missing == nil || errors.Is(why, errUnderWay) {
			missing = why
		}
	}
	return out, missing
}

func (a *allocator) awake() {
	select {
	case a.wake <- struct{}{}:
	default: // it is awake already and will see all that is asked
	}
}

// only forgets what was asked for and is not in wanted any more. It says whether any of the rest was asked for
// and not refused: the answer is not there, or came after Allocate was called last, and run calls again for it.
func (a *allocator) only(wanted map[registry.Key]bool) (underWay bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.asked, func(k registry.Key, _ error) bool { return !wanted[k] })
	for k := range wanted {
		if _, ok := a.known[k]; ok {
			return true
		}
	}
	for _, why := range a.asked {
		if errors.Is(why, errUnderWay) {
			return true
		}
	}
	return false
}

// release says that a service is gone. It is let go when nothing is asked, which may be for the same.
func (a *allocator) release(k registry.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, k)
	delete(a.asked, k)
	if a.gone = append(a.gone, k); !a.busy {
		a.letGo()
	}
}

// letGo tells addresses what is not in use any more. mu is held.
func (a *allocator) letGo() {
	a.addresses.Release(slices.DeleteFunc(a.gone, func(k registry.Key) bool { return a.known[k] != nil || a.asked[k] != nil }))
	a.gone = nil
}

// lost are the services whose addresses are others' now, once.
func (a *allocator) lost() []registry.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := a.moved
	a.moved = nil
	return moved
}

// lose forgets the addresses of what has lost them, and says whether there is anything.
func (a *allocator) lose() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	lost := a.addresses.Lost()
	for _, k := range lost {
		delete(a.known, k)
	}
	a.moved = append(a.moved, lost...)
	return len(a.moved) > 0
}

// run asks the store for what is missing, again every retry while it refuses, and calls again after each
// answer, until ctx ends.
func (a *allocator) run(ctx context.Context, again func()) error {
	retry := time.NewTimer(a.retry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-a.addresses.Losing():
		case <-retry.C:
		}
		retry.Reset(a.retry)
		if a.lose() {
			again() // which asks for them
		}
		keys := a.missing()
		if len(keys) == 0 {
			continue
		}
		got, err := a.addresses.Allocate(ctx, keys)
		if ctx.Err() != nil {
			return nil
		}
		a.answer(keys, got, err)
		again()
	}
}

// missing lists what to ask for, in order. Until answer nothing is let go.
func (a *allocator) missing() []registry.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = len(a.asked) > 0
	return slices.SortedFunc(maps.Keys(a.asked), registry.Key.Compare)
}

// answer takes in what the store said of keys.
func (a *allocator) answer(keys []registry.Key, got map[registry.Key][]netip.Addr, err error) {
	if err == nil {
		err = errNone
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range keys {
		if a.asked[k] == nil {
			continue // it is gone
		}
		if addresses := got[k]; len(addresses) > 0 {
			a.known[k] = addresses
			delete(a.asked, k)
		} else {
			a.asked[k] = err
		}
	}
	a.busy = false
	a.letGo()
}
