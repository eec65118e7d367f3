package feed

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// groupID identifies a group among all sources.
type groupID struct{ source, name string }

// group is the latest content of a group, and what is retained of its former content.
type group[K Key, T any] struct {
	source *source[K, T]
	name   string

	items   []*item[K, T]
	removed map[K]*item[K, T] // items that it supplied and no source supplies any more

	invalid    []string
	unreadable time.Time // since when it cannot be read; zero: it can
	problems   []Problem
	hasError   bool // some problem is an error
}

// compare orders groups by use.
func (g *group[K, T]) compare(o *group[K, T]) int {
	return cmp.Or(cmp.Compare(g.source.rank, o.source.rank), cmp.Compare(g.source.Name, o.source.Name), cmp.Compare(g.name, o.name))
}

// title names a group for people.
func (g *group[K, T]) title() string { return fmt.Sprintf("%s of source %s", g.name, g.source.Name) }

// empty says that there is nothing to remember of the group.
func (g *group[K, T]) empty() bool {
	return len(g.items) == 0 && len(g.removed) == 0 && len(g.invalid) == 0 && len(g.problems) == 0 && g.unreadable.IsZero()
}

// stale says that older content is used than the group has.
func (g *group[K, T]) stale() bool {
	return slices.ContainsFunc(g.items, func(i *item[K, T]) bool { return i.stale })
}

// replace replaces the content of a group (R1). Items that it does not supply any more are added to c.lost.
func (m *Merger[K, T]) replace(s *source[K, T], u Update[T], c *change[K, T]) {
	g := m.group(s, u.Group)
	m.count(g, -1)
	c.faultEnded = c.faultEnded || g.hasError && Errors(u.Problems) == 0 || !g.unreadable.IsZero() && !u.Unreadable
	g.problems, g.hasError = dated(u.Problems, g.problems, c.now), Errors(u.Problems) > 0
	if u.Unreadable {
		if g.unreadable.IsZero() {
			g.unreadable = c.now
		}
		for _, i := range g.items {
			i.stale = true
		}
	} else {
		g.unreadable = time.Time{}
		m.setInvalid(g, u.Invalid, c)
		m.replaceItems(g, u.Items, c)
	}
	m.count(g, +1)
	m.tidy(g)
}

// group returns the group of a name, which it makes when there is none.
func (m *Merger[K, T]) group(s *source[K, T], name string) *group[K, T] {
	g := s.groups[name]
	if g == nil {
		g = &group[K, T]{source: s, name: name, removed: map[K]*item[K, T]{}}
		s.groups[name] = g
	}
	return g
}

// tidy forgets a group that is empty. It is to be saved either way.
func (m *Merger[K, T]) tidy(g *group[K, T]) {
	m.unsaved[groupID{g.source.Name, g.name}] = struct{}{}
	if g.empty() {
		delete(g.source.groups, g.name)
	}
}

// replaceItems replaces the items of a group that can be read. An item that is invalid now stays in its former version.
func (m *Merger[K, T]) replaceItems(g *group[K, T], values []T, c *change[K, T]) {
	old := g.items
	g.items = make([]*item[K, T], 0, len(values))
	has := make(map[K]struct{}, len(values))
	for _, value := range values {
		i := &item[K, T]{group: g, index: len(g.items), key: m.cfg.KeyOf(value), value: value}
		g.items = append(g.items, i)
		has[i.key] = struct{}{}
	}
	for _, i := range old {
		m.remove(i, c)
		if _, ok := has[i.key]; ok {
			continue
		}
		if m.isInvalid(g, i.key) {
			i.stale, i.index = true, len(g.items)
			g.items = append(g.items, i)
			continue
		}
		c.lost = append(c.lost, i)
	}
	for _, i := range g.items {
		m.endRemovals(i, c)
		m.add(i, c)
	}
}

// setInvalid replaces the keys that a group names as invalid.
func (m *Merger[K, T]) setInvalid(g *group[K, T], invalid []string, c *change[K, T]) {
	old := g.invalid
	for _, k := range old {
		delete(m.invalid[k], g)
		if len(m.invalid[k]) == 0 {
			delete(m.invalid, k)
		}
	}
	g.invalid = invalid
	for _, k := range invalid {
		if m.invalid[k] == nil {
			m.invalid[k] = map[*group[K, T]]struct{}{}
		}
		m.invalid[k][g] = struct{}{}
	}
	for _, k := range old {
		_, still := m.invalid[k][g]
		c.faultEnded = c.faultEnded || !still
	}
}

func (m *Merger[K, T]) isInvalid(g *group[K, T], k K) bool {
	if len(g.invalid) == 0 {
		return false
	}
	_, ok := m.invalid[k.String()][g]
	return ok
}

// count adds a group to the counters and indexes, or takes it out.
func (m *Merger[K, T]) count(g *group[K, T], by int) {
	s := g.source
	s.items += by * len(g.items)
	s.problems += by * len(g.problems)
	if g.stale() {
		s.stale += by
	}
	setMember(s.faulty, g, by > 0 && len(g.problems) > 0)
	setMember(m.unreadable, g, by > 0 && !g.unreadable.IsZero())
}

func setMember[K comparable](set map[K]struct{}, k K, member bool) {
	if member {
		set[k] = struct{}{}
	} else {
		delete(set, k)
	}
}

// dated returns problems with the time when each appeared: that of the same problem in old, or now.
func dated(problems, old []Problem, now time.Time) []Problem {
	same := func(p Problem) Problem { // what tells problems apart: an edit above one moves its line
		p.Line, p.Since = 0, time.Time{}
		return p
	}
	since := make(map[Problem]time.Time, len(old))
	for _, p := range old {
		since[same(p)] = p.Since
	}
	out := slices.Clone(problems)
	for n, p := range out {
		if !p.Since.IsZero() {
			continue
		}
		out[n].Since = now
		if t, ok := since[same(p)]; ok {
			out[n].Since = t
		}
	}
	return out
}
