package feed

import "time"

// faults holds the invalid and unreadable groups of all sources (R3).
type faults[K Key, T any] struct {
	settle     time.Duration
	invalid    map[string]*group[K, T] // group that reports the key as invalid
	unreadable []*group[K, T]
}

// faults returns the faults of all sources.
func (m *Merger[K, T]) faults() faults[K, T] {
	f := faults[K, T]{settle: m.cfg.Settle, invalid: map[string]*group[K, T]{}}
	for _, s := range m.sources {
		for g := range s.faulty {
			if !g.Unreadable.IsZero() {
				f.unreadable = append(f.unreadable, g)
			}
			for _, k := range g.Invalid {
				f.invalid[k] = g
			}
		}
	}
	return f
}

// reason returns why R3 retains an item. Empty if it does not.
func (f *faults[K, T]) reason(i *item[K, T]) string {
	if f.settle == 0 {
		return ""
	}
	if g := f.invalid[i.key.String()]; g != nil {
		return g.title() + " defines an invalid version of it"
	}
	if i.group.HasError {
		return i.group.title() + ", which defined it, has an error"
	}
	from, to := i.At.Add(-unreadableBefore), i.At.Add(f.settle)
	for _, g := range f.unreadable {
		if !g.Unreadable.Before(from) && !g.Unreadable.After(to) {
			return g.title() + ", which may define it now, cannot be read"
		}
	}
	return ""
}
