package feed

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// groupID identifies a group among all sources.
type groupID struct{ source, name string }

// GroupState holds the faults of a group.
type GroupState struct {
	// Invalid is Update.Invalid.
	Invalid []string `json:",omitzero"`
	// Unreadable is when the group became unreadable. Zero if it can be read.
	Unreadable time.Time `json:",omitzero"`
	// HasError means that a problem of the group is an error.
	HasError bool `json:",omitzero"`
}

// ok reports whether the group has no fault.
func (g *GroupState) ok() bool { return len(g.Invalid) == 0 && g.Unreadable.IsZero() && !g.HasError }

// group holds the current items of a group and its retained items.
type group[K Key, T any] struct {
	GroupState
	source *source[K, T]
	name   string

	items    []*item[K, T]
	removed  map[K]*item[K, T] // retained items that the group no longer supplies (R3, R4)
	problems []Problem
}

// title returns the name of a group and its source, for problems.
func (g *group[K, T]) title() string { return g.source.title(g.name) }

// title returns a place in the source, such as a file, with the name of the source. A source without
// such places gives its own name.
func (s *source[K, T]) title(place string) string {
	if place == s.Name {
		return "source " + s.Name
	}
	return place + " of source " + s.Name
}

// group returns the group with a name. It adds one if there is none.
func (m *Merger[K, T]) group(s *source[K, T], name string) *group[K, T] {
	g := s.groups[name]
	if g == nil {
		g = &group[K, T]{source: s, name: name, removed: map[K]*item[K, T]{}}
		s.groups[name] = g
	}
	return g
}

// all returns the items of the group, and those that are retained.
func (g *group[K, T]) all() []*item[K, T] {
	return slices.AppendSeq(slices.Clone(g.items), maps.Values(g.removed))
}

// replace replaces the content of a group (R1), and returns the items that it no longer supplies.
func (m *Merger[K, T]) replace(s *source[K, T], u Update[T], now time.Time) (lost []*item[K, T]) {
	g := m.group(s, u.Group)
	g.problems, g.HasError = dated(u.Problems, g.problems, now), Errors(u.Problems) > 0
	if u.Unreadable {
		if g.Unreadable.IsZero() {
			g.Unreadable = now
		}
		for _, i := range g.items {
			i.Stale = true
		}
	} else {
		g.Unreadable, g.Invalid = time.Time{}, u.Invalid
		lost = m.replaceItems(g, u.Items)
	}
	m.groupChanged(g)
	return lost
}

// replaceItems replaces the items of a group that can be read. An item that became invalid keeps
// its previous version.
func (m *Merger[K, T]) replaceItems(g *group[K, T], values []T) (lost []*item[K, T]) {
	old := g.items
	g.items = make([]*item[K, T], 0, len(values))
	has, invalid := map[K]struct{}{}, map[string]struct{}{}
	for n, value := range values {
		i := m.newItem(g, n, SavedItem[T]{Item: value})
		g.items = append(g.items, i)
		has[i.key] = struct{}{}
	}
	for _, k := range g.Invalid {
		invalid[k] = struct{}{}
	}
	for _, i := range old {
		m.remove(i)
		if _, ok := has[i.key]; ok {
			continue
		}
		if _, i.Stale = invalid[i.key.String()]; !i.Stale {
			lost = append(lost, i)
			continue
		}
		i.index = len(g.items)
		g.items = append(g.items, i)
	}
	g.source.items += len(g.items) - len(old)
	for _, i := range g.items {
		m.add(i)
	}
	return lost
}

func (m *Merger[K, T]) newItem(g *group[K, T], index int, saved SavedItem[T]) *item[K, T] {
	return &item[K, T]{SavedItem: saved, key: m.cfg.KeyOf(saved.Item), group: g, index: index}
}

// groupChanged marks the group unsaved, updates the set of faulty groups, and deletes the group if
// it is empty.
func (m *Merger[K, T]) groupChanged(g *group[K, T]) {
	s := g.source
	m.unsaved[groupID{s.Name, g.name}] = struct{}{}
	faulty := !g.ok() || len(g.problems) > 0 || len(g.removed) > 0
	setMember(s.faulty, g, faulty)
	if len(g.items) == 0 && !faulty {
		delete(s.groups, g.name)
	}
}

// dated returns problems with the time when each appeared: that of the same problem in old, or else
// now.
func dated(problems, old []Problem, now time.Time) []Problem {
	since := make(map[Problem]time.Time, len(old))
	for _, p := range old {
		since[p.undated()] = p.Since
	}
	out := slices.Clone(problems)
	for n, p := range out {
		out[n].Since = cmp.Or(p.Since, since[p.undated()], now)
	}
	return out
}

// undated returns the problem without its time and line. An edit above it changes the line.
func (p Problem) undated() Problem {
	p.Line, p.Since = 0, time.Time{}
	return p
}
