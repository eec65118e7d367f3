package record

import (
	"context"
	"sync"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Watchers reports changes of tables. The zero value is ready. Safe for concurrent use.
type Watchers struct {
	mu     sync.Mutex
	tables map[string]*task.Broadcaster // guarded by mu
}

// Watch returns a channel that receives changes of a table until ctx ends.
func (w *Watchers) Watch(ctx context.Context, table string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables == nil {
		w.tables = map[string]*task.Broadcaster{}
	}
	if w.tables[table] == nil {
		w.tables[table] = &task.Broadcaster{}
	}
	return w.tables[table].Watch(ctx)
}

// Notify reports writes. It does not block.
func (w *Watchers) Notify(writes []Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range writes {
		if b := w.tables[x.Table]; b != nil {
			b.Notify()
		}
	}
}
