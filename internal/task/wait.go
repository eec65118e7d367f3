package task

import (
	"context"
	"sync"
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
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Broadcaster reports changes to all who watch. The zero value is ready. Safe for concurrent use.
type Broadcaster struct {
	mu       sync.Mutex
	watchers map[chan struct{}]struct{} // guarded by mu
}

// Watch returns a channel that receives after each change, until ctx ends. Several changes may be
// reported once. The channel is never closed.
func (b *Broadcaster) Watch(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[chan struct{}]struct{}{}
	}
	b.watchers[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, c)
	})
	return c
}

// Notify reports a change. It does not block.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.watchers {
		Poke(c)
	}
}

// Merge returns a channel that receives after one of channels did, until ctx ends. Of no channel it
// returns nil.
func Merge(ctx context.Context, channels ...<-chan struct{}) <-chan struct{} {
	switch len(channels) {
	case 0:
		return nil
	case 1:
		return channels[0]
	}
	out := make(chan struct{}, 1)
	for _, c := range channels {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-c:
					Poke(out)
				}
			}
		}()
	}
	return out
}
