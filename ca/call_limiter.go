package ca

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxCalls is how many calls are in progress at once, and maxCallerCalls how many of one
	// caller. A call in progress holds a request of up to the receive limit of the server.
	maxCalls, maxCallerCalls = 16, 2
	// maxQueue is how many calls are in progress or wait. A call that waits holds what one
	// flow-control window of its stream lets through, 128 KiB: 256 MiB for all of them.
	maxQueue = 2048
	// maxCallerQueue is how many of them come from one caller. Pods that share a service account
	// are one caller.
	maxCallerQueue = 64
	// queueTimeout is how long a call waits.
	queueTimeout = 10 * time.Second
)

// callLimiter bounds the calls in progress, of all callers and of each. Others wait in the order in
// which they came. Safe for concurrent use.
type callLimiter struct {
	running *semaphore.Weighted // of all callers

	mu      sync.Mutex
	calls   int                     // guarded by mu: calls in progress or waiting
	callers map[string]*callerCalls // guarded by mu: callers that have any
}

// callerCalls are the calls of one caller.
type callerCalls struct {
	running *semaphore.Weighted
	calls   int // in progress or waiting; guarded by the limiter's mu
}

func newCallLimiter() *callLimiter {
	return &callLimiter{running: semaphore.NewWeighted(maxCalls), callers: map[string]*callerCalls{}}
}

// acquire waits until a call of a caller may be in progress. Errors: *Refusal, or why ctx ended.
func (l *callLimiter) acquire(ctx context.Context, caller string) (release func(), err error) {
	full := busy("too many calls wait for a certificate; try again", "too many calls")
	k := l.enter(caller)
	if k == nil {
		return nil, full
	}
	wait, cancel := context.WithTimeoutCause(ctx, queueTimeout, full)
	defer cancel()
	if k.running.Acquire(wait, 1) == nil {
		if l.running.Acquire(wait, 1) == nil {
			return func() {
				l.running.Release(1)
				k.running.Release(1)
				l.leave(caller)
			}, nil
		}
		k.running.Release(1)
	}
	l.leave(caller)
	return nil, context.Cause(wait)
}

// enter counts a call of a caller. Nil: the queue is full.
func (l *callLimiter) enter(caller string) *callerCalls {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.callers[caller]
	if k == nil {
		k = &callerCalls{running: semaphore.NewWeighted(maxCallerCalls)}
	}
	if k.calls >= maxCallerQueue || l.calls >= maxQueue {
		return nil
	}
	l.calls++
	k.calls++
	l.callers[caller] = k
	return k
}

// leave is the end of a call that entered.
func (l *callLimiter) leave(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	k := l.callers[caller]
	if k.calls--; k.calls == 0 {
		delete(l.callers, caller)
	}
}
