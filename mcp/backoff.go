package mcp

import (
	"math/rand/v2"
	"time"
)

// The waits between two attempts to reach a server: they double from one to the other, with jitter.
// Source: Istio's client begins at 500ms and ends at 60s.
const firstWait, lastWait = 500 * time.Millisecond, 30 * time.Second

// backoff are the waits between attempts.
type backoff struct{ last time.Duration }

// next is the next wait: between a half and the whole of its step, so that many clients do not come at once.
func (b *backoff) next() time.Duration {
	switch {
	case b.last == 0:
		b.last = firstWait
	default:
		b.last = min(2*b.last, lastWait)
	}
	return b.last/2 + rand.N(b.last/2)
}

// reset begins anew: the last attempt was a good one.
func (b *backoff) reset() { b.last = 0 }
