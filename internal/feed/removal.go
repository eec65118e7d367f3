package feed

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

const (
	// unreadableBefore is the longest time from when a group became unreadable to a removal for
	// which it may be the reason (R3).
	unreadableBefore = 10 * time.Minute
	// massItems is the minimum number of lost items that counts as a mass removal, unless all are
	// lost.
	massItems = 10
)

// Removal is the state of an item that is used although no source supplies it any more.
type Removal struct {
	// At is when the item was lost. Zero if a source supplies it.
	At time.Time `json:",omitzero"`
	// Settled means that R4 has been checked, or does not apply.
	Settled bool `json:",omitzero"`
	// Mass means that R4 retains the item.
	Mass bool `json:",omitzero"`

	due    time.Time // when to check the removal again; zero: R4 retains the item without limit
	reason string    // why the item is retained, for problems; empty before the first check
}

// lost reports whether no source supplies the item any more.
func (r *Removal) lost() bool { return !r.At.IsZero() }

// replaces reports whether the item by is used instead of a lost item, so that this one need not be
// retained. With Union, only an item of the same source does that: an active one, or a retained one
// of the same group.
func (m *Merger[K, T]) replaces(by, lost *item[K, T]) bool {
	a, b := by.group, lost.group
	return !m.cfg.Union || a.source == b.source && (!by.lost() || a.name == b.name)
}

// retain keeps a lost item active, unless another item replaces it.
func (m *Merger[K, T]) retain(i *item[K, T], now time.Time) {
	if slices.ContainsFunc(m.items[i.key], func(o *item[K, T]) bool { return m.replaces(o, i) }) {
		return
	}
	i.group = m.group(i.group.source, i.group.name) // groupChanged may have removed it
	i.group.removed[i.key] = i
	m.add(i)
	if i.due = now.Add(m.cfg.Settle); i.Mass {
		m.retainMass(i)
	}
	m.nextRemoval = Earlier(m.nextRemoval, i.due)
	m.groupChanged(i.group)
}

// endRemoval removes a retained item.
func (m *Merger[K, T]) endRemoval(i *item[K, T]) {
	m.remove(i)
	delete(i.group.removed, i.key)
	m.groupChanged(i.group)
}

// retainMass retains an item by R4.
func (m *Merger[K, T]) retainMass(i *item[K, T]) {
	i.Settled, i.Mass, i.due = true, true, time.Time{}
	i.reason = fmt.Sprintf("source %s lost all or most of its items at once", i.group.source.Name)
	if m.cfg.MassRemoval > 0 {
		i.due = i.At.Add(m.cfg.Settle + m.cfg.MassRemoval)
	}
	m.groupChanged(i.group)
}

// Earlier returns the earlier of two times. It ignores a time that is zero.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// removed yields the items of a source that R3 and R4 retain.
func (s *source[K, T]) removed() iter.Seq[*item[K, T]] {
	return func(yield func(*item[K, T]) bool) {
		for g := range s.faulty {
			for _, i := range g.removed {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Expire ends retention that is due, and returns the keys whose items changed.
func (m *Merger[K, T]) Expire(now time.Time) (changed []K) {
	return m.finish(now)
}

// NextExpiry returns when to call Expire next. Zero if it need not be called before the next Apply.
func (m *Merger[K, T]) NextExpiry() time.Time {
	return m.nextRemoval
}

// settle ends or extends the retention of items whose removal is due.
func (m *Merger[K, T]) settle(now time.Time) {
	if m.nextRemoval.IsZero() || now.Before(m.nextRemoval) {
		return
	}
	m.nextRemoval = time.Time{}
	f := m.faults()
	for _, s := range m.sources {
		mass := s.lostMost(now)
		for i := range s.removed() {
			switch {
			case mass && !i.Settled:
				m.retainMass(i)
			case i.due.IsZero() || now.Before(i.due): // retained until later
			case i.Mass || !m.settleItem(i, f, now):
				m.endRemoval(i)
				continue
			}
			m.nextRemoval = Earlier(m.nextRemoval, i.due)
		}
	}
}

// settleItem decides, each time Settle has passed, whether a fault may still be the reason for a
// removal (R3). It reports whether the item stays.
func (m *Merger[K, T]) settleItem(i *item[K, T], f faults[K, T], now time.Time) (stays bool) {
	i.reason, i.due = f.reason(i), now.Add(m.cfg.Settle)
	if !i.Settled {
		i.Settled = true
		m.groupChanged(i.group)
	}
	return i.reason != ""
}

// lostMost reports whether the pending removals are a mass removal. It is only evaluated once one
// of them is due.
func (s *source[K, T]) lostMost(now time.Time) bool {
	lost, due := 0, false
	for i := range s.removed() {
		if !i.Settled {
			lost++
			due = due || !now.Before(i.due)
		}
	}
	if !due {
		return false
	}
	return s.items == 0 || (lost >= massItems && lost > s.items)
}

// AcceptRemovals removes all items of a source that R3 and R4 retain, and returns the keys whose
// items changed. A source that is not in the list loses all its items.
func (m *Merger[K, T]) AcceptRemovals(source string, now time.Time) (changed []K) {
	s := m.sources[source]
	if s == nil {
		return nil
	}
	if s.rank == unlisted {
		m.applyGroups(s, Batch[T]{Full: true, Explicit: true}, now)
	}
	for i := range s.removed() {
		m.endRemoval(i)
	}
	return m.finish(now)
}
