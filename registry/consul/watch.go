package consul

import (
	"context"
	"sync"
	"time"
)

// watch repeats a query, which blocks in Consul until there is something new.
// https://developer.hashicorp.com/consul/api-docs/features/blocking
type watch struct {
	// query sends the query and handles its answer. Index zero means that it must not block.
	query func(ctx context.Context, index uint64) (answer, error)
	// report is called with every failure after the first ones, as tolerate says, and with nil when they are over.
	report func(ctx context.Context, err error)
	// tolerate is how many failures in a row are not reported.
	tolerate int
	// gap is the least time from an answer to the next query. It grows with the size of the answer.
	gap time.Duration
	// maxBackoff is the longest wait after a failure.
	maxBackoff time.Duration

	mu        sync.Mutex
	refreshed bool               // guarded by mu; the next query must not block
	stop      context.CancelFunc // guarded by mu; ends the current query or back-off; nil before run
}

// gapPerItem is added to the gap for each instance of an answer, so that a large service that changes all the time
// does not keep a processor busy.
const gapPerItem = 100 * time.Microsecond

// run repeats the query until ctx ends.
func (w *watch) run(ctx context.Context) {
	var index uint64
	failures := 0
	for ctx.Err() == nil {
		turn, refreshed := w.begin(ctx)
		if refreshed {
			index = 0
		}
		a, err := w.query(turn, index)
		switch {
		case err != nil && turn.Err() != nil: // ended by refresh, or the loop ends
		case err != nil:
			if failures++; failures > w.tolerate {
				w.report(ctx, err)
			}
			_ = sleep(turn, min(backoff(failures), w.maxBackoff)) // refresh ends it
		default:
			if failures > w.tolerate {
				w.report(ctx, nil)
			}
			failures = 0
			_ = sleep(ctx, w.gap+time.Duration(a.size)*gapPerItem) // the loop ends with ctx
		}
		// Zero after a failure: a query that blocks would not notice that Consul is back. After a restore Consul moves the
		// index backwards; the next query waits for more than the new one.
		// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
		index = a.index
	}
}

// begin returns the context of one query, and whether refresh was called since the last one.
func (w *watch) begin(ctx context.Context) (turn context.Context, refreshed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	turn, w.stop = context.WithCancel(ctx)
	refreshed, w.refreshed = w.refreshed, false
	return turn, refreshed
}

// refresh ends a query that blocks, and a back-off. The next query does not block.
func (w *watch) refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshed = true
	if w.stop != nil {
		w.stop()
	}
}
