package consul

import (
	"context"
	"math/rand/v2"
	"time"
)

// firstBackoff and lastBackoff bound the wait after a failure.
const firstBackoff, lastBackoff = 100 * time.Millisecond, 20 * time.Second

// backoff returns how long to wait after so many failures in a row. Half of it is random, so that those who failed
// together do not retry together.
func backoff(failures int) time.Duration {
	d := lastBackoff
	if failures < 9 {
		d = min(d, firstBackoff<<max(0, failures-1))
	}
	return d/2 + rand.N(d/2)
}

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
