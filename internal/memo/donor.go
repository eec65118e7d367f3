package memo

import (
	"runtime"
	"sync"
	"weak"
)

// Donor is a Func for similar results. f also receives the latest result with the same base, and
// may reuse its parts. f must return an equal result without it. Safe for concurrent use.
type Donor[Base, In comparable, Out any] struct {
	base    func(In) Base
	results *Func[In, Out]

	mu     sync.Mutex
	latest map[Base]donation[In, Out] // guarded by mu
}

// donation is a result and its input.
type donation[In, Out any] struct {
	in    In
	value weak.Pointer[Out]
}

// NewDonor returns a Donor for f. f must depend only on in, and never return nil. before is the
// latest result with the same base, or nil, and was is its input.
func NewDonor[Base, In comparable, Out any](base func(In) Base, f func(in In, before *Out, was In) *Out) *Donor[Base,
	In, Out] {
	d := &Donor[Base, In, Out]{base: base, latest: map[Base]donation[In, Out]{}}
	d.results = New(func(in In) *Out {
		before, was := d.before(base(in))
		out := f(in, before, was)
		d.keep(base(in), in, out)
		return out
	})
	return d
}

// Get returns f's result for in, from the cache if the result is still in use.
func (d *Donor[Base, In, Out]) Get(in In) *Out { return d.results.Get(in) }

// Len returns the number of cached results, including collected ones that are not yet removed.
func (d *Donor[Base, In, Out]) Len() int { return d.results.Len() }

func (d *Donor[Base, In, Out]) before(b Base) (*Out, In) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.latest[b]
	return last.value.Value(), last.in
}

// keep makes out the donor of its base until it is collected or replaced.
func (d *Donor[Base, In, Out]) keep(b Base, in In, out *Out) {
	value := weak.Make(out)
	d.mu.Lock()
	d.latest[b] = donation[In, Out]{in, value}
	d.mu.Unlock()
	runtime.AddCleanup(out, func(b Base) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.latest[b].value == value {
			delete(d.latest, b)
		}
	}, b)
}
