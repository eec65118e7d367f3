package memo

import (
	"runtime"
	"sync"
	"weak"
)

// Donor is a Func for results that resemble one another: f also gets the latest result of the same
// base, which may only donate parts. With or without it, f must make the same result. Safe for
// concurrent use.
type Donor[Base, In comparable, Out any] struct {
	base    func(In) Base
	results *Func[In, Out]

	mu     sync.Mutex
	latest map[Base]donation[In, Out] // guarded by mu
}

// donation is a result and what it was made of.
type donation[In, Out any] struct {
	in    In
	value weak.Pointer[Out]
}

// NewDonor wraps f, which must depend on nothing but in and never return nil. before is nil when
// nothing of the base is remembered; was is the input that it was made of.
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

// Get returns f's result for in: the remembered one while anybody still holds it.
func (d *Donor[Base, In, Out]) Get(in In) *Out { return d.results.Get(in) }

// Len is the number of results remembered, collected ones not yet forgotten included.
func (d *Donor[Base, In, Out]) Len() int { return d.results.Len() }

func (d *Donor[Base, In, Out]) before(b Base) (*Out, In) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.latest[b]
	return last.value.Value(), last.in
}

// keep makes out the donor of its base until it is collected or a newer one comes.
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
