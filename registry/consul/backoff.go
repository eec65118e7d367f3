package consul

import (
	"math/rand/v2"
	"time"
)

// firstBackoff and lastBackoff are the minimum and maximum retry delay.
const firstBackoff, lastBackoff = 100 * time.Millisecond, 20 * time.Second

// backoff returns the retry delay after the given number of consecutive failures. Half of it is
// random, so that clients that failed together do not retry together.
func backoff(failures int) time.Duration {
	d := min(lastBackoff, firstBackoff<<min(failures-1, 8))
	return d/2 + rand.N(d/2)
}
