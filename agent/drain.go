package agent

import (
	"context"
	"time"
)

// drainPoll is the time between two counts of open connections.
const drainPoll = 200 * time.Millisecond

// settle waits until no connection is open, at least d.Minimum and at most d.Maximum. It returns how many
// are left open. An Envoy that cannot be asked has none.
func (d Drain) settle(ctx context.Context, open func(context.Context) (uint64, error)) uint64 {
	start := time.Now()
	for left := uint64(0); ; {
		n, err := open(ctx)
		if err != nil {
			return 0 // it has ended
		}
		left = n
		passed := time.Since(start)
		wait := drainPoll
		switch {
		case passed >= d.Maximum:
			return left
		case passed < d.Minimum:
			wait = min(max(wait, d.Minimum-passed), d.Maximum-passed)
		case left == 0:
			return 0
		default:
			wait = min(wait, d.Maximum-passed)
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(wait):
		}
	}
}
