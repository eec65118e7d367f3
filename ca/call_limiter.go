package ca

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/connlimit"
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
	// queue limits calls in progress or waiting. The calls of a caller share a semaphore.
	queue *connlimit.Limiter[*semaphore.Weighted]
}

func newCallLimiter() *callLimiter {
	ofCaller := func() *semaphore.Weighted { return semaphore.NewWeighted(maxCallerCalls) }
	return &callLimiter{running: semaphore.NewWeighted(maxCalls),
		queue: connlimit.NewLimiter(maxQueue, maxCallerQueue, ofCaller)}
}

// acquire waits until a call of a caller may be in progress. Errors: *Refusal, or why ctx ended.
func (l *callLimiter) acquire(ctx context.Context, caller string) (release func(), err error) {
	full := busy("too many calls wait for a certificate; try again", "too many calls")
	own, leave, ok := l.queue.Enter(caller)
	if !ok {
		return nil, full
	}
	wait, cancel := context.WithTimeoutCause(ctx, queueTimeout, full)
	defer cancel()
	if own.Acquire(wait, 1) == nil {
		if l.running.Acquire(wait, 1) == nil {
			return func() {
				l.running.Release(1)
				own.Release(1)
				leave()
			}, nil
		}
		own.Release(1)
	}
	leave()
	return nil, context.Cause(wait)
}
