package consul

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

// watch repeats a blocking query.
// https://developer.hashicorp.com/consul/api-docs/features/blocking
type watch struct {
	// query sends one request and returns a function that applies the response. With index 0 it
	// sends a non-blocking query. apply runs on the loop goroutine.
	query func(ctx context.Context, index uint64) (a answer, apply func(), err error)
	// report receives each failure after the first tolerate ones. It runs on the loop goroutine.
	report func(text string)
	// tolerate is the number of consecutive failures that are not reported.
	tolerate int
	// delay is the time before the first query.
	delay time.Duration
	// gap is the minimum time between a response and the next query, plus gapPerItem per item.
	gap time.Duration
	// maxBackoff is the maximum retry delay.
	maxBackoff time.Duration
}

// gapPerItem extends the interval per instance. It limits the CPU cost of a large service that
// changes constantly.
const gapPerItem = 100 * time.Microsecond

// start repeats the query of w until ctx ends.
func (s *syncer) start(ctx context.Context, w watch) {
	s.running.Go(func() {
		var index uint64
		task.Sleep(ctx, w.delay)
		for failures := 0; ctx.Err() == nil; {
			a, apply, err := w.query(ctx, index)
			pause := w.gap + time.Duration(a.size)*gapPerItem
			if err == nil {
				failures = 0
				s.do(ctx, apply)
			} else {
				failures++
				pause = min(backoff(failures), w.maxBackoff)
				if failures > w.tolerate {
					s.do(ctx, func() { w.report(s.client.explain(err)) })
				}
			}
			task.Sleep(ctx, pause)
			// Zero after a failure, so that the next query returns at once. After a restore the
			// index may go back; use it as received.
			// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
			index = a.index
		}
	})
}
