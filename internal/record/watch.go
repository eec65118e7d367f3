package record

import (
	"context"
	"sync"
)

// Watchers reports changes of tables. The zero value is ready. Safe for concurrent use.
type Watchers struct {
	mu     sync.Mutex
	tables map[string]map[chan struct{}]struct{} // guarded by mu
}

// Watch returns a channel that receives changes of a table until ctx ends.
func (w *Watchers) Watch(ctx context.Context, table string) <-chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables == nil {
		w.tables = map[string]map[chan struct{}]struct{}{}
	}
	if w.tables[table] == nil {
		w.tables[table] = map[chan struct{}]struct{}{}
	}
	w.tables[table][c] = struct{}{}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.tables[table], c)
	})
	return c
}

// Notify reports writes. It does not block.
func (w *Watchers) Notify(writes []Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range writes {
		for c := range w.tables[x.Table] {
			select {
			case c <- struct{}{}:
			default: // a change is pending already
			}
		}
	}
}
