package main

import "sync"

// bell wakes all who wait for it. The zero value is ready. Safe for concurrent use.
type bell struct {
	mu sync.Mutex
	c  chan struct{} // guarded by mu; closed by the next ring
}

// wait is closed when the bell rings next.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
