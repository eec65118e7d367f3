package ca

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// start has a call of a key acquire its turn and keep it until stop is closed. It sends what came
// of it.
func start(ctx context.Context, l *callLimiter, key string, queue int, stop <-chan struct{}) <-chan error {
	out := make(chan error, 1)
	go func() {
		release, err := l.acquire(ctx, key, queue)
		out <- err
		if err == nil {
			<-stop
			release()
		}
	}()
	synctest.Wait()
	return out
}

// Few calls of one key are in progress, however many wait, and few of all keys.
func TestCallsInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newCallLimiter(), make(chan struct{})
		var flood, others []<-chan error
		for range 10 {
			flood = append(flood, start(t.Context(), l, "flood", 10, stop))
		}
		for i := range maxCalls {
			others = append(others, start(t.Context(), l, fmt.Sprint(i), 10, stop))
		}
		running := func(calls []<-chan error) (n int) {
			for _, c := range calls {
				n += len(c)
			}
			return n
		}
		if n := running(flood); n != maxKeyCalls {
			t.Errorf("%d calls of one key are in progress, want %d", n, maxKeyCalls)
		}
		if n := running(others); n != maxCalls-maxKeyCalls {
			t.Errorf("%d calls of others are in progress, want %d", n, maxCalls-maxKeyCalls)
		}
		close(stop)
		synctest.Wait()
		for i, c := range append(flood, others...) {
			if err := <-c; err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if l.calls != 0 || len(l.keys) != 0 {
			t.Errorf("%d calls of %d keys never left", l.calls, len(l.keys))
		}
	})
}

// The queue of a key and that of all keys are bounded.
func TestCallQueueIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newCallLimiter(), make(chan struct{})
		defer close(stop)
		for range 3 {
			start(t.Context(), l, "a", 3, stop)
		}
		if err := <-start(t.Context(), l, "a", 3, stop); !errors.Is(err, errQueueFull) {
			t.Errorf("the fourth call of a key: %v", err)
		}
		if err := <-start(t.Context(), l, "b", 3, stop); err != nil {
			t.Errorf("a call of another key: %v", err)
		}
		for i := l.calls; i < maxQueue; i++ {
			start(t.Context(), l, fmt.Sprint(i), 3, stop)
		}
		if err := <-start(t.Context(), l, "c", 3, stop); !errors.Is(err, errQueueFull) {
			t.Errorf("a call when all queues are full: %v", err)
		}
	})
}

// A few keys do not fill the queue of all keys.
func TestCallQueueIsShared(t *testing.T) {
	t.Parallel()
	l := newCallLimiter()
	for _, tc := range []struct {
		key  string
		want int
	}{{"a", maxQueue / 2}, {"b", maxQueue / 4}, {"c", maxQueue / 8}} {
		n := 0
		for l.enter(tc.key, maxQueue) != nil {
			n++
		}
		if n != tc.want {
			t.Errorf("key %s has %d calls, want %d", tc.key, n, tc.want)
		}
	}
}

// A call does not wait forever, and not for longer than its caller does.
func TestCallQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newCallLimiter(), make(chan struct{})
		defer close(stop)
		for range maxKeyCalls {
			start(t.Context(), l, "a", 10, stop)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(ctx, l, "a", 10, stop)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose caller has gone: %v", err)
		}
		if err := <-start(t.Context(), l, "a", 10, stop); !errors.Is(err, errQueueFull) {
			t.Errorf("a call that waits for too long: %v", err)
		}
		if l.calls != maxKeyCalls {
			t.Errorf("%d calls are in progress or wait, want %d", l.calls, maxKeyCalls)
		}
	})
}
