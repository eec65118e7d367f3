package consul

import (
	"context"
	"sync"
	"time"
)

// watch repeats a query, which blocks in Consul until its data changes.
// https://developer.hashicorp.com/consul/api-docs/features/blocking
type watch struct {
	// query sends the query and handles its answer. It must not block if index is zero.
	query func(ctx context.Context, index uint64) (answer, error)
	// report is called with every failure but the first ones (tolerate), and with nil after the
	// last.
	report func(ctx context.Context, err error)
	// tolerate is the number of consecutive failures that are not reported.
	tolerate int
	// gap is the minimum time from an answer to the next query. It grows with the size of the
	// answer.
	gap time.Duration
	// maxBackoff is the maximum retry delay.
	maxBackoff time.Duration

	mu        sync.Mutex
	refreshed bool               // guarded by mu; the next query must not block
	stop      context.CancelFunc // guarded by mu; ends the current query or back-off; nil before run
}

// gapPerItem is added to the gap for each instance of an answer, so that a large service that
// changes all the time does not keep a processor busy.
const gapPerItem = 100 * time.Microsecond

// run repeats the query until ctx ends.
func (w *watch) run(ctx context.Context) {
	var index uint64
	failures := 0
	for ctx.Err() == nil {
		queryCtx, refreshed := w.begin(ctx)
		if refreshed {
			index = 0
		}
		a, err := w.query(queryCtx, index)
		switch {
		case err != nil && queryCtx.Err() != nil: // refresh was called, or ctx is done
		case err != nil:
			failures++
			if failures > w.tolerate {
				w.report(ctx, err)
			}
			_ = sleep(queryCtx, min(backoff(failures), w.maxBackoff)) // refresh ends it
		default:
			if failures > w.tolerate {
				w.report(ctx, nil)
			}
			failures = 0
			_ = sleep(ctx, w.gap+time.Duration(a.size)*gapPerItem)
		}
		// It is zero after a failure: a blocking query would not notice that Consul is back. After
		// a restore Consul moves the index backwards, and the next query waits for more than the
		// new one.
		// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
		index = a.index
	}
}

// begin returns the context of one query, and whether refresh was called since the last one.
func (w *watch) begin(ctx context.Context) (queryCtx context.Context, refreshed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	queryCtx, w.stop = context.WithCancel(ctx)
	refreshed, w.refreshed = w.refreshed, false
	return queryCtx, refreshed
}

// refresh ends a blocking query or a back-off. The next query does not block.
func (w *watch) refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshed = true
	if w.stop != nil {
		w.stop()
	}
}
