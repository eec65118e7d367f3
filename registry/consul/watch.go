package consul

import (
	"context"
	"time"
)

// watch repeats a query, which blocks in Consul until its data changes.
// https://developer.hashicorp.com/consul/api-docs/features/blocking
type watch struct {
	// query sends a query. It must not block if index is zero. The goroutine of syncer.loop calls
	// apply, which handles the answer.
	query func(ctx context.Context, index uint64) (a answer, apply func(), err error)
	// report is called by the goroutine of syncer.loop with every failure but the first ones
	// (tolerate).
	report func(text string)
	// tolerate is the number of consecutive failures that are not reported.
	tolerate int
	// gap is the minimum time from an answer to the next query. It grows with the size of the
	// answer.
	gap time.Duration
	// maxBackoff is the maximum retry delay.
	maxBackoff time.Duration
}

// gapPerItem is added to the gap for each instance of an answer, so that a large service that
// changes all the time does not keep a processor busy.
const gapPerItem = 100 * time.Microsecond

// start repeats the query of w until ctx ends.
func (s *syncer) start(ctx context.Context, w watch) {
	s.running.Go(func() {
		var index uint64
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
			_ = sleep(ctx, pause) // the loop ends with ctx
			// It is zero after a failure: a blocking query would not notice that Consul is back.
			// After a restore Consul moves the index backwards, and the next query waits for more
			// than the new one.
			// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
			index = a.index
		}
	})
}
