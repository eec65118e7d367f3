package feed

import (
	"time"
)

// SavedGroup is the saved form of a group.
type SavedGroup[T any] struct {
	Source, Group string
	// Removed means that the saved group is to be deleted.
	Removed bool `json:",omitzero"`
	GroupState
	Items []SavedItem[T]
}

// deliveredGroup is a marker: a saved group with this name records that the source has sent
// content.
const deliveredGroup = ""

// SavedItem is an item of a SavedGroup.
type SavedItem[T any] struct {
	Item T
	// Stale means that a newer version exists but is invalid.
	Stale bool `json:",omitzero"`
	// Removal is set if the item is used although the group no longer supplies it.
	Removal `json:",omitzero"`
}

// Restore adds the groups that were saved before a restart. Call it once, before Apply. It returns
// the keys that have items.
func (m *Merger[K, T]) Restore(saved []SavedGroup[T], now time.Time) (changed []K) {
	for _, group := range saved {
		s := m.source(group.Source)
		s.delivered = true
		if group.Group == deliveredGroup {
			continue
		}
		g := m.group(s, group.Group)
		g.GroupState = group.GroupState
		for n, saved := range group.Items {
			i := m.newItem(g, n, saved)
			if i.lost() {
				m.retain(i, now)
			} else {
				g.items = append(g.items, i)
				s.items++
				m.add(i)
			}
		}
		m.groupChanged(g)
	}
	return m.finish(now)
}

// TakeChanged returns the groups that changed since the last call, for a Writer.
func (m *Merger[K, T]) TakeChanged() []SavedGroup[T] {
	out := make([]SavedGroup[T], 0, len(m.unsaved))
	for id := range m.unsaved {
		saved := SavedGroup[T]{Source: id.source, Group: id.name, Removed: true}
		s := m.sources[id.source]
		if s != nil && id.name == deliveredGroup {
			saved.Removed = false
		} else if s != nil && s.groups[id.name] != nil {
			g := s.groups[id.name]
			saved.Removed, saved.GroupState = false, g.GroupState
			for _, i := range g.all() {
				saved.Items = append(saved.Items, i.SavedItem)
			}
		}
		out = append(out, saved)
	}
	m.unsaved = map[groupID]struct{}{} // a map that was large stays slow to iterate
	return out
}
