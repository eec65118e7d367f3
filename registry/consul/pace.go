package consul

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstBackoff and lastBackoff bound the wait after a failure.
	firstBackoff, lastBackoff = 100 * time.Millisecond, 20 * time.Second
	// leastGap is the least time from one answer of a service to the next question: a storm of its changes costs a bounded
	// share of Consul and of this machine, and the first change after a quiet spell waits for nothing.
	leastGap = 50 * time.Millisecond
	// costGap is how many times as long as an answer took to read the gap after it is at least: large services take longer.
	costGap = 4
)

// backoff is how long to wait after so many failures in a row. Many who failed at once do not come back at once.
func backoff(failures int) time.Duration {
	most := lastBackoff
	if failures < 9 {
		most = min(most, firstBackoff<<max(0, failures-1))
	}
	return most/2 + rand.N(most/2)
}

// pacer keeps a gap between answers.
type pacer struct{ next time.Time }

// took notes that an answer arrived now, and how long it took to read.
func (p *pacer) took(now time.Time, cost time.Duration) {
	p.next = now.Add(max(leastGap, costGap*cost))
}

// wait waits for the end of the gap.
func (p *pacer) wait(ctx context.Context) error { return sleep(ctx, time.Until(p.next)) }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
