package feed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// unreadableBefore is how long before a removal a group may have become unreadable to be the reason for it (R3).
	unreadableBefore = 10 * time.Minute
	// massItems is how many items a source that keeps some has to lose for R4.
	massItems = 10
)

// removal is about an item that is used although no source supplies it any more.
type removal struct {
	at     time.Time // when it was lost
	before int       // how many items its source supplied before
	due    time.Time // when to decide on it; zero: not before a fault ends, it returns, or somebody accepts it
	// settled means that R4 does not apply, or was decided on.
	settled bool
	mass    bool   // it is retained by R4
	reason  string // why it is retained, for people; empty before that is decided
}

// retained is Supply.Retained.
func (i *item[K, T]) retained() string {
	switch {
	case i.removal != nil && i.removal.reason != "":
		return i.removal.reason
	case i.removal != nil:
		return "its removal is about to take effect"
	case !i.group.unreadable.IsZero():
		return i.group.title() + " cannot be read"
	case i.stale:
		return i.group.title() + " has a newer version that is invalid"
	}
	return ""
}

// removeLost removes the items of c.lost, or retains them.
func (m *Merger[K, T]) removeLost(c *change[K, T]) {
	if len(c.lost) == 0 || c.explicit {
		return
	}
	s := c.lost[0].group.source
	if s.dropped {
		return
	}
	lost := m.unsupplied(c.lost)
	mass := m.cfg.Settle == 0 && !c.unlisted && s.lostMost(len(lost), c.before)
	if m.cfg.Settle == 0 && !mass {
		return
	}
	for _, i := range lost {
		r := &removal{at: c.now, before: c.before, due: c.now.Add(m.cfg.Settle), settled: c.unlisted}
		i.removal = r
		if mass {
			m.retainMass(i)
		}
		m.retain(i, c)
	}
}

// unsupplied returns those of the items that nothing replaces. Of several of one key it returns the one that was used.
func (m *Merger[K, T]) unsupplied(items []*item[K, T]) []*item[K, T] {
	type id struct {
		key   K
		group string
	}
	slices.SortFunc(items, (*item[K, T]).compare)
	seen := make(map[id]struct{}, len(items))
	return slices.DeleteFunc(items, func(i *item[K, T]) bool {
		this := id{key: i.key}
		if m.cfg.Union {
			this.group = i.group.name
		}
		_, again := seen[this]
		seen[this] = struct{}{}
		return again || m.supplied(i)
	})
}

// supplied says that a source supplies an item in place of i, which was lost.
func (m *Merger[K, T]) supplied(i *item[K, T]) bool {
	return slices.ContainsFunc(m.items[i.key], func(o *item[K, T]) bool {
		return o.removal == nil && (!m.cfg.Union || o.group.source == i.group.source)
	})
}

// lostMost decides on R4 for a source that lost items of those that it supplied before.
func (s *source[K, T]) lostMost(lost, before int) bool {
	return lost > 0 && s.items == 0 || lost >= massItems && 2*lost > before
}

// retainMass retains an item by R4.
func (m *Merger[K, T]) retainMass(i *item[K, T]) {
	r := i.removal
	r.settled, r.mass, r.due = true, true, time.Time{}
	r.reason = fmt.Sprintf("source %s lost all or most of its items at once", i.group.source.Name)
	if m.cfg.MassRemoval > 0 {
		r.due = r.at.Add(m.cfg.Settle + m.cfg.MassRemoval)
	}
}

// retain puts an item that was lost back into use.
func (m *Merger[K, T]) retain(i *item[K, T], c *change[K, T]) {
	g := m.group(i.group.source, i.group.name)
	i.group, g.removed[i.key] = g, i
	g.source.removed[i] = struct{}{}
	m.add(i, c)
	m.wakeAt(i.removal.due)
	m.tidy(g)
}

// endRemovals ends the removals of items that i replaces.
func (m *Merger[K, T]) endRemovals(i *item[K, T], c *change[K, T]) {
	for _, o := range slices.Clone(m.items[i.key]) {
		if o.removal != nil && (!m.cfg.Union || o.group.source == i.group.source) {
			m.endRemoval(o, c)
		}
	}
}

// endRemoval stops using an item that was retained.
func (m *Merger[K, T]) endRemoval(i *item[K, T], c *change[K, T]) {
	s := i.group.source
	m.remove(i, c)
	delete(i.group.removed, i.key)
	delete(s.removed, i)
	m.tidy(i.group)
	if !s.listed && len(s.groups) == 0 {
		delete(m.sources, s.Name)
	}
}

func (m *Merger[K, T]) wakeAt(t time.Time) {
	if !t.IsZero() && (m.nextRemoval.IsZero() || t.Before(m.nextRemoval)) {
		m.nextRemoval = t
	}
}

// recheckRemovals decides anew, after the settle time, on items that R3 retains for a reason that may have ended.
func (m *Merger[K, T]) recheckRemovals(now time.Time) {
	for _, s := range m.sources {
		for i := range s.removed {
			if r := i.removal; !r.mass && r.due.IsZero() {
				r.due = now.Add(m.cfg.Settle)
				m.wakeAt(r.due)
			}
		}
	}
}

// Expire ends retention that is due, and returns the keys whose items changed.
func (m *Merger[K, T]) Expire(now time.Time) (changed []K) {
	c := m.newChange(now)
	m.expireSources(c)
	if m.nextRemoval.IsZero() || now.Before(m.nextRemoval) {
		return m.finish(c)
	}
	m.nextRemoval = time.Time{}
	unreadable := m.unreadableByTime()
	for _, s := range m.sources {
		m.settleMass(s, now)
		for i := range s.removed {
			r := i.removal
			if r.due.IsZero() || now.Before(r.due) {
				m.wakeAt(r.due)
				continue
			}
			r.settled = true
			if !r.mass {
				r.reason = m.reason(i, unreadable)
			}
			if r.mass || r.reason == "" {
				m.endRemoval(i, c)
				continue
			}
			r.due = time.Time{}
			m.tidy(i.group)
		}
	}
	return m.finish(c)
}

// settleMass decides on R4 when the settle time of a removal ends: over all removals of its source that are pending.
func (m *Merger[K, T]) settleMass(s *source[K, T], now time.Time) {
	var pending []*item[K, T]
	var first *removal
	due := false
	for i := range s.removed {
		r := i.removal
		if r.settled {
			continue
		}
		pending = append(pending, i)
		due = due || !now.Before(r.due)
		if first == nil || r.at.Before(first.at) || r.at.Equal(first.at) && r.before > first.before {
			first = r
		}
	}
	if due && s.lostMost(len(pending), first.before) {
		for _, i := range pending {
			m.retainMass(i)
			m.tidy(i.group)
		}
	}
}

// reason is why R3 retains an item; empty: it does not.
func (m *Merger[K, T]) reason(i *item[K, T], unreadable []*group[K, T]) string {
	if named := m.invalid[i.key.String()]; len(named) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Keys(named)), (*group[K, T]).compare)
		return first.title() + " defines an invalid version of it"
	}
	if i.group.hasError {
		return i.group.title() + ", which defined it, has an error"
	}
	from, to := i.removal.at.Add(-unreadableBefore), i.removal.at.Add(m.cfg.Settle)
	n, _ := slices.BinarySearchFunc(unreadable, from, func(g *group[K, T], t time.Time) int { return g.unreadable.Compare(t) })
	if n < len(unreadable) && !unreadable[n].unreadable.After(to) {
		return unreadable[n].title() + ", which may define it now, cannot be read"
	}
	return ""
}

// unreadableByTime lists the unreadable groups, the one first that became unreadable first.
func (m *Merger[K, T]) unreadableByTime() []*group[K, T] {
	return slices.SortedFunc(maps.Keys(m.unreadable), func(a, b *group[K, T]) int {
		return cmp.Or(a.unreadable.Compare(b.unreadable), a.compare(b))
	})
}

// AcceptRemovals removes all items of a source that R3 and R4 retain, and returns the keys whose items changed. A source that is
// not in the list loses all its items.
func (m *Merger[K, T]) AcceptRemovals(source string, now time.Time) (changed []K) {
	s := m.sources[source]
	if s == nil {
		return nil
	}
	c := m.newChange(now)
	if !s.listed {
		m.removeSource(s, c)
	}
	for i := range s.removed {
		m.endRemoval(i, c)
	}
	return m.finish(c)
}
