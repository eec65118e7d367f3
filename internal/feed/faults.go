package feed

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Doubts is another number whenever Refused, Unread, Faulty, Unseen, Seen, StandsIn, Faults, Waiting or Has may answer otherwise than
// before: who keeps what they answered need not ask again for as long as it is the same.
func (m *Merger[K, T]) Doubts() uint64 { return m.doubts }

// doubtful says that something is wrong with a group, or was not seen, or that other sources have something of it too.
func (m *Merger[K, T]) doubtful(g *group[K]) bool {
	return len(g.problems) > 0 || g.kept || slices.ContainsFunc(g.keys, func(k K) bool { return len(m.byKey[k]) > 1 })
}

// Refused are the objects, as problems call them, that a source has and that are refused as it has them, each with the group
// where that is.
func (m *Merger[K, T]) Refused() map[string]GroupID {
	out := map[string]GroupID{}
	for id, g := range m.groups {
		for _, p := range g.problems {
			if p.Severity != Error || p.Object == "" {
				continue
			}
			if first, known := out[p.Object]; !known || id.compare(first) < 0 {
				out[p.Object] = id
			}
		}
	}
	return out
}

// Unread is the first group with a part that cannot be read: there may be anything in it. False: there is none.
func (m *Merger[K, T]) Unread() (GroupID, bool) {
	return m.first(func(_ GroupID, g *group[K]) bool {
		return slices.ContainsFunc(g.problems, func(p Problem) bool { return p.Unread })
	})
}

// Faulty says that there is an error in a group, or that something it has does not count because another group has it. One
// that there is not has none.
func (m *Merger[K, T]) Faulty(id GroupID) bool {
	g := m.groups[id]
	return g != nil && (g.wrong() || m.clashes(id, g))
}

// Unseen lists the sources of which not all was seen since the start, since they took the place of others, or since they were
// away, which they may be still: what they have now, and what is wrong with it, is not all known. In order.
func (m *Merger[K, T]) Unseen() []string {
	var names []string
	for name, s := range m.sources {
		if s.unseen() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// unseen says that not all of a source was seen.
func (s *sourceState) unseen() bool { return !s.synced || s.anew || s.stands.Error != "" || s.odd > 0 }

// unseen says that there may be something else at the origin of a group than it has.
func (g *group[K]) unseen() bool {
	return g.kept || slices.ContainsFunc(g.problems, func(p Problem) bool { return p.Away })
}

// Seen says of a group that what is wrong with it is known: it was said since the start, or, where it never was, all of its
// source was. What it returns holds until the next Apply, and is cheap for many groups.
func (m *Merger[K, T]) Seen() func(GroupID) bool {
	unseen := sync.OnceValue(m.Unseen)
	return func(id GroupID) bool {
		if g := m.groups[id]; g != nil {
			return !g.kept
		}
		return !slices.Contains(unseen(), id.Source)
	}
}

// StandsIn says that what is in a group is from before the start: what is there now was not seen.
func (m *Merger[K, T]) StandsIn(id GroupID) bool {
	g := m.groups[id]
	return g != nil && g.kept
}

// Fault is a group that somebody edited and that is faulty; see Merger.Faulty.
type Fault struct {
	Group  GroupID
	Edited time.Time
	// Clash says that something it has does not count because another source has it.
	Clash bool
	// First says that it was so when it was first looked at since the start: when its source first said everything, or, where that was
	// what was kept, when it was seen. A source that was not there at the start has none.
	First bool
}

// Faults are all of them, in order.
func (m *Merger[K, T]) Faults() []Fault {
	var out []Fault
	for id, g := range m.groups {
		if g.edited.IsZero() {
			continue
		}
		if clash := m.clashes(id, g); clash || g.wrong() {
			out = append(out, Fault{id, g.edited, clash, g.first})
		}
	}
	slices.SortFunc(out, func(x, y Fault) int { return x.Group.compare(y.Group) })
	return out
}

// first is the first group of those that match.
func (m *Merger[K, T]) first(match func(GroupID, *group[K]) bool) (first GroupID, ok bool) {
	for id, g := range m.groups {
		if (!ok || id.compare(first) < 0) && match(id, g) {
			first, ok = id, true
		}
	}
	return first, ok
}

func (g *group[K]) wrong() bool {
	return slices.ContainsFunc(g.problems, func(p Problem) bool { return p.Severity == Error })
}

// clashes says that an item of a group does not count because another source has it too.
func (m *Merger[K, T]) clashes(id GroupID, g *group[K]) bool {
	return slices.ContainsFunc(g.keys, func(k K) bool { return m.byKey[k][0].source.name != id.Source })
}

func (i GroupID) compare(o GroupID) int {
	return cmp.Or(cmp.Compare(i.Source, o.Source), cmp.Compare(i.Group, o.Group))
}
