package memo

import (
	"runtime"
	"sync"
	"weak"
)

// Func is a function with a cache. Safe for concurrent use. Concurrent calls with the same input
// compute once.
type Func[In comparable, Out any] struct {
	f func(In) *Out

	mu      sync.Mutex
	entries map[In]*entry[Out] // guarded by mu
}

// entry is a result, or a computation that is in progress.
type entry[Out any] struct {
	once  sync.Once
	value weak.Pointer[Out] // guarded by Func.mu
	done  bool              // guarded by Func.mu
}

// New returns a Func for f. f must depend only on its input, and never return nil.
func New[In comparable, Out any](f func(In) *Out) *Func[In, Out] {
	return &Func[In, Out]{f: f, entries: map[In]*entry[Out]{}}
}

// Get returns f's result for in, from the cache if the result is still in use.
func (m *Func[In, Out]) Get(in In) *Out {
	for {
		m.mu.Lock()
		e := m.entries[in]
		if e != nil && e.done {
			if v := e.value.Value(); v != nil {
				m.mu.Unlock()
				return v
			}
			e = nil // collected, its cleanup has not run yet
		}
		if e == nil {
			e = &entry[Out]{}
			m.entries[in] = e
		}
		m.mu.Unlock()

		if v := m.compute(in, e); v != nil {
			return v
		}
	}
}

// Len returns the number of cached results, including collected ones that are not yet removed.
func (m *Func[In, Out]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// compute fills e, or waits for the call that does. It returns nil if the result was collected in
// the meantime.
func (m *Func[In, Out]) compute(in In, e *entry[Out]) *Out {
	var mine *Out
	e.once.Do(func() {
		defer func() {
			if mine == nil { // f panicked: the next caller tries again
				m.forget(in, e)
			}
		}()
		mine = m.f(in)
		m.mu.Lock()
		e.value, e.done = weak.Make(mine), true
		m.mu.Unlock()
		runtime.AddCleanup(mine, func(in In) { m.forget(in, e) }, in)
	})
	if mine != nil {
		return mine
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.value.Value()
}

// forget removes e, unless it was replaced.
func (m *Func[In, Out]) forget(in In, e *entry[Out]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[in] == e {
		delete(m.entries, in)
	}
}
