package ca

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxCalls is how many calls are in progress at once, and maxKeyCalls how many of one key. A
	// call in progress holds a request of up to the receive limit of the server.
	maxCalls, maxKeyCalls = 16, 2
	// maxQueue is how many calls are in progress or wait. A call that waits holds what one
	// flow-control window of its stream lets through, 128 KiB: 256 MiB for all of them.
	maxQueue = 2048
	// maxCallerQueue is how many of them come from one authenticated caller. Pods that share a
	// service account are one caller.
	maxCallerQueue = 64
	// queueTimeout is how long a call waits.
	queueTimeout = 10 * time.Second
)

// errQueueFull says that too many calls wait, or that this one did so for too long.
var errQueueFull = errors.New("too many calls wait")

// callLimiter lets few calls be in progress, and few of those of one key. Others wait in the order
// in which they came. At most maxKeyCalls calls of one key compete for the shared slots. A key may
// have no more calls than the queue has free places: one key takes at most half of the queue, and a
// few keys cannot fill it. Safe for concurrent use.
type callLimiter struct {
	running *semaphore.Weighted // of all keys
	timeout time.Duration       // how long a call waits

	mu    sync.Mutex
	calls int                  // guarded by mu: calls in progress or waiting
	keys  map[string]*keyCalls // guarded by mu: keys that have any
}

// keyCalls are the calls of one key.
type keyCalls struct {
	running *semaphore.Weighted
	calls   int // in progress or waiting; guarded by the limiter's mu
}

func newCallLimiter() *callLimiter {
	return &callLimiter{running: semaphore.NewWeighted(maxCalls), timeout: queueTimeout, keys: map[string]*keyCalls{}}
}

// acquire waits until a call of a key may be in progress; queue is how many calls the key may have
// at most, in progress or waiting. Errors: errQueueFull, or why ctx ended.
func (l *callLimiter) acquire(ctx context.Context, key string, queue int) (release func(), err error) {
	k := l.enter(key, queue)
	if k == nil {
		return nil, errQueueFull
	}
	wait, cancel := context.WithTimeoutCause(ctx, l.timeout, errQueueFull)
	defer cancel()
	if k.running.Acquire(wait, 1) == nil {
		if l.running.Acquire(wait, 1) == nil {
			return func() {
				l.running.Release(1)
				k.running.Release(1)
				l.leave(key)
			}, nil
		}
		k.running.Release(1)
	}
	l.leave(key)
	return nil, context.Cause(wait)
}

// enter counts a call of a key. Nil: the queue is full.
func (l *callLimiter) enter(key string, queue int) *keyCalls {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[key]
	if k == nil {
		k = &keyCalls{running: semaphore.NewWeighted(maxKeyCalls)}
	}
	if k.calls >= min(queue, maxQueue-l.calls) {
		return nil
	}
	l.calls++
	k.calls++
	l.keys[key] = k
	return k
}

// leave is the end of a call that entered.
func (l *callLimiter) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	k := l.keys[key]
	if k.calls--; k.calls == 0 {
		delete(l.keys, key)
	}
}
