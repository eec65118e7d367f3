package ca

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// start has a call of a caller acquire its turn and keep it until stop is closed. It sends what
// came of it.
func start(ctx context.Context, l *callLimiter, caller string, stop <-chan struct{}) <-chan error {
	out := make(chan error, 1)
	go func() {
		release, err := l.acquire(ctx, caller)
		out <- err
		if err == nil {
			<-stop
			release()
		}
	}()
	synctest.Wait()
	return out
}

func isFull(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Reason == "too many calls"
}

// Few calls of one caller are in progress, however many wait, and few of all callers. The queue of
// a caller is bounded.
func TestCallsInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newCallLimiter(), make(chan struct{})
		var flood, others []<-chan error
		for range maxCallerQueue {
			flood = append(flood, start(t.Context(), l, "flood", stop))
		}
		if err := <-start(t.Context(), l, "flood", stop); !isFull(err) {
			t.Errorf("one more call of the caller: %v", err)
		}
		for i := range maxCalls {
			others = append(others, start(t.Context(), l, fmt.Sprint(i), stop))
		}
		running := func(calls []<-chan error) (n int) {
			for _, c := range calls {
				n += len(c)
			}
			return n
		}
		if n := running(flood); n != maxCallerCalls {
			t.Errorf("%d calls of one caller are in progress, want %d", n, maxCallerCalls)
		}
		if n := running(others); n != maxCalls-maxCallerCalls {
			t.Errorf("%d calls of others are in progress, want %d", n, maxCalls-maxCallerCalls)
		}
		close(stop)
		synctest.Wait()
		for i, c := range append(flood, others...) {
			if err := <-c; err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if n, _ := l.queue.Numbers(); n != 0 {
			t.Errorf("%d calls never left", n)
		}
	})
}

// A call does not wait forever, and not for longer than its caller does.
func TestCallQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newCallLimiter(), make(chan struct{})
		defer close(stop)
		for range maxCallerCalls {
			start(t.Context(), l, "a", stop)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(ctx, l, "a", stop)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose caller has gone: %v", err)
		}
		if err := <-start(t.Context(), l, "a", stop); !isFull(err) {
			t.Errorf("a call that waits for too long: %v", err)
		}
		if n, _ := l.queue.Numbers(); n != maxCallerCalls {
			t.Errorf("%d calls are in progress or wait, want %d", n, maxCallerCalls)
		}
	})
}
