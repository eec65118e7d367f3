package feed

import "time"

// SavedGroup is a group as it is saved across restarts.
type SavedGroup[T any] struct {
	Source, Group string
	// Removed means that the group is to be deleted from what was saved.
	Removed bool
	Items   []T
	// Retained are items that the group does not supply any more.
	Retained []SavedRemoval[T]
	Invalid  []string
	// UnreadableSince is when the group became unreadable; zero: it is readable.
	UnreadableSince time.Time
	// HasError means that a problem of the group is an error.
	HasError bool
}

// SavedRemoval is an item that R3 or R4 retains.
type SavedRemoval[T any] struct {
	Item T
	// At is when the source lost it; Before is how many items the source supplied until then.
	At     time.Time
	Before int
	// Settled means that R4 was decided on; Mass means that R4 retains it.
	Settled, Mass bool
}

// Restore puts in groups that were saved before a restart. Call it once, after the first SetSources and before Apply. Saved groups of
// sources that are not in the list are kept as SetSources says.
func (m *Merger[K, T]) Restore(saved []SavedGroup[T], now time.Time) {
	c := m.newChange(now)
	for _, g := range saved {
		m.restoreGroup(g, c)
	}
	clear(m.unsaved)
}

func (m *Merger[K, T]) restoreGroup(saved SavedGroup[T], c *change[K, T]) {
	s := m.source(saved.Source)
	s.restored = c.now
	m.replace(s, Update[T]{Group: saved.Group, Items: saved.Items}, c)
	g := m.group(s, saved.Group)
	m.count(g, -1)
	m.setInvalid(g, saved.Invalid, c)
	g.unreadable, g.hasError = saved.UnreadableSince, saved.HasError
	for _, i := range g.items {
		i.stale = !g.unreadable.IsZero() || m.isInvalid(g, i.key)
	}
	m.count(g, +1)
	for _, r := range saved.Retained {
		i := &item[K, T]{group: g, key: m.cfg.KeyOf(r.Item), value: r.Item}
		i.removal = &removal{at: r.At, before: r.Before, settled: r.Settled, due: c.now.Add(m.cfg.Settle)}
		if r.Mass {
			m.retainMass(i)
		}
		if !m.supplied(i) {
			m.retain(i, c)
		}
	}
	m.tidy(g)
}

// TakeChanged returns the groups that changed since it was called last, for a Writer.
func (m *Merger[K, T]) TakeChanged() []SavedGroup[T] {
	out := make([]SavedGroup[T], 0, len(m.unsaved))
	for id := range m.unsaved {
		out = append(out, m.saved(id))
	}
	clear(m.unsaved)
	return out
}

func (m *Merger[K, T]) saved(id groupID) SavedGroup[T] {
	out := SavedGroup[T]{Source: id.source, Group: id.name, Removed: true}
	s := m.sources[id.source]
	if s == nil || s.groups[id.name] == nil {
		return out
	}
	g := s.groups[id.name]
	out.Removed, out.Invalid, out.UnreadableSince, out.HasError = false, g.invalid, g.unreadable, g.hasError
	for _, i := range g.items {
		out.Items = append(out.Items, i.value)
	}
	for _, i := range g.removed {
		r := i.removal
		out.Retained = append(out.Retained, SavedRemoval[T]{i.value, r.at, r.before, r.settled, r.mass})
	}
	return out
}
