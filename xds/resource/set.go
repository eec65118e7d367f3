package resource

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Layer is a part of a set: resources sorted by name, names unique. Immutable: the pointer is the
// version.
type Layer struct {
	// Problems are warnings about the resources, and what was left out because Envoy would refuse it.
	Problems []feed.Problem
	// Effects has the patches that are for the layer, and whether each one changed something. A patch
	// that is left out counts as well: it has a problem.
	Effects map[*Patch]bool

	items []*Resource
}

// NewLayer makes a layer of items, which it sorts and keeps. Of two items with one name the first
// stays.
func NewLayer(items []*Resource) *Layer {
	slices.SortStableFunc(items, func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) })
	items = slices.CompactFunc(items, func(a, b *Resource) bool { return a.Name == b.Name })
	return &Layer{items: items}
}

// Items are the resources in the order of their names, not to be changed.
func (l *Layer) Items() []*Resource {
	if l == nil {
		return nil
	}
	return l.items
}

// Get returns the resource of that name, or nil.
func (l *Layer) Get(name string) *Resource {
	i, ok := Search(l.Items(), name)
	if !ok {
		return nil
	}
	return l.items[i]
}

// Search finds a name in resources that are sorted by name.
func Search(items []*Resource, name string) (i int, ok bool) {
	return slices.BinarySearchFunc(items, name, func(r *Resource, n string) int { return strings.Compare(r.Name, n) })
}

// With returns the layer with those of its resources replaced that have the names of items; the
// others stay, and items of other names are left out. It is the layer itself when nothing differs.
func (l *Layer) With(items []*Resource) *Layer {
	var out []*Resource
	for _, r := range items {
		i, ok := Search(l.Items(), r.Name)
		if !ok || l.items[i] == r {
			continue
		}
		if out == nil {
			out = slices.Clone(l.items)
		}
		out[i] = r
	}
	if out == nil {
		return l
	}
	return &Layer{Problems: l.Problems, Effects: l.Effects, items: out}
}

// Set is what one proxy has of one type: what it shares with equal proxies and what is its own. It
// is a comparable value; equal sets have equal contents. A name stands in one of the two: where
// both have it, the own one counts.
type Set struct{ Shared, Own *Layer }

// Get returns the resource of that name, or nil.
func (s Set) Get(name string) *Resource {
	if r := s.Own.Get(name); r != nil {
		return r
	}
	return s.Shared.Get(name)
}

// Len is the number of resources, counting a name that stands in both layers once.
func (s Set) Len() int {
	n := len(s.Shared.Items())
	for _, r := range s.Own.Items() {
		if s.Shared.Get(r.Name) == nil {
			n++
		}
	}
	return n
}

// All yields the resources: the shared ones by name, then the own ones by name.
func (s Set) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		for _, r := range s.Shared.Items() {
			if len(s.Own.Items()) > 0 && s.Own.Get(r.Name) != nil {
				continue
			}
			if !yield(r) {
				return
			}
		}
		for _, r := range s.Own.Items() {
			if !yield(r) {
				return
			}
		}
	}
}

// Problems returns the problems of sets, each once, sorted by object, field and text. A patch that has
// no effect in any set is one, too.
func Problems(sets ...Set) []feed.Problem {
	var out []feed.Problem
	seen := map[*Layer]bool{nil: true}
	for _, s := range sets {
		for _, l := range []*Layer{s.Shared, s.Own} {
			if !seen[l] {
				seen[l] = true
				out = append(out, l.Problems...)
			}
		}
	}
	out = append(out, withoutEffect(seen)...)
	compare := func(a, b feed.Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text))
	}
	slices.SortFunc(out, compare)
	return slices.CompactFunc(out, func(a, b feed.Problem) bool { return compare(a, b) == 0 })
}
