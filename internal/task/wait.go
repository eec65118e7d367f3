package task

import (
	"context"
	"time"
)

// Sleep waits. It returns false when ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Poke makes the reader of c look, now or when it is ready. The capacity of c is 1.
func Poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
