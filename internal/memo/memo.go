package memo

import (
	"runtime"
	"sync"
	"weak"
)

// Func is a function that remembers its results. Safe for concurrent use; concurrent calls with one
// input compute once.
type Func[In comparable, Out any] struct {
	f    func(In) *Out
	mark func(*Out) bool // nil: no result is marked

	mu      sync.Mutex
	entries map[In]*entry[Out]       // guarded by mu
	marked  map[*entry[Out]]struct{} // guarded by mu
}

// entry is one result, or one that is being computed.
type entry[Out any] struct {
	once  sync.Once
	value weak.Pointer[Out] // guarded by Func.mu
	done  bool              // guarded by Func.mu
}

// New wraps f, which must depend on nothing but its input and never return nil.
func New[In comparable, Out any](f func(In) *Out) *Func[In, Out] {
	return &Func[In, Out]{f: f, entries: map[In]*entry[Out]{}}
}

// NewMarking is New for a function some of whose results are to be found again: mark says which. It
// must depend on nothing but the result, and hold for few: they are kept track of.
func NewMarking[In comparable, Out any](f func(In) *Out, mark func(*Out) bool) *Func[In, Out] {
	m := New(f)
	m.mark, m.marked = mark, map[*entry[Out]]struct{}{}
	return m
}

// Get returns f's result for in: the remembered one while anybody still holds it.
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

// Marked are the marked results that somebody still holds, in no order. It costs as much as there
// are of them, however many results are remembered.
func (m *Func[In, Out]) Marked() []*Out {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Out
	for e := range m.marked {
		if v := e.value.Value(); v != nil {
			out = append(out, v)
		}
	}
	return out
}

// Len is the number of results remembered, collected ones not yet forgotten included.
func (m *Func[In, Out]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// compute fills e, or waits for the call that does. It returns nil when the result was computed
// and collected in between.
func (m *Func[In, Out]) compute(in In, e *entry[Out]) *Out {
	var mine *Out
	e.once.Do(func() {
		defer func() {
			if mine == nil { // f panicked: the next caller tries anew
				m.forget(in, e)
			}
		}()
		out := m.f(in)
		marked := m.mark != nil && m.mark(out)
		mine = out
		m.mu.Lock()
		e.value, e.done = weak.Make(mine), true
		if marked {
			m.marked[e] = struct{}{}
		}
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

// forget drops e, unless a newer result took its place.
func (m *Func[In, Out]) forget(in In, e *entry[Out]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.marked, e)
	if m.entries[in] == e {
		delete(m.entries, in)
	}
}
