package ads

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// diffKey identifies a difference: a client that has from, as far as known covers it, should have
// to, as far as names cover it.
type diffKey struct {
	from, to     *resource.Layer
	known, names *Names
	kind         *Kind
}

// diff is what a client needs to get from one layer to another. Immutable, shared between streams.
type diff struct {
	changed []*resource.Resource // sorted by name
	removed []string             // sorted; names that do not exist, or no longer exist
	gone    []string             // sorted; names that the client has and that no longer exist

	once   sync.Once
	parts  [][]byte // see encoded
	chunks []*chunk // that parts are made of: they stay in the cache while the diff is used
}

// empty reports whether there is no difference.
func (d *diff) empty() bool { return d == nil || len(d.changed) == 0 && len(d.removed) == 0 }

func (d *diff) sort() {
	slices.SortFunc(d.changed, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(d.removed)
	slices.Sort(d.gone)
}

// find returns what the diff has of a name: a resource, or its removal.
func (d *diff) find(name string) (r *resource.Resource, removed bool) {
	if d == nil {
		return nil, false
	}
	if i, ok := resource.Search(d.changed, name); ok {
		return d.changed[i], false
	}
	_, removed = slices.BinarySearch(d.removed, name)
	return nil, removed
}

// encoded returns the elements of a delta response with the whole diff. layer is the one that it
// leads to.
func (d *diff) encoded(c *Cache, layer *resource.Layer) [][]byte {
	d.once.Do(func() { d.parts, d.chunks = c.encode(layer, d.changed, d.removed) })
	return d.parts
}

// compare computes a diff.
func compare(k diffKey) *diff {
	d := &diff{}
	if k.known == k.names { // what is the same in both layers stays as it is
		for name, same := range eitherName(k.from.Items(), k.to.Items()) {
			if !same && k.names.Covers(name) {
				d.add(k.kind, name, true, k.from.Get(name), k.to.Get(name))
			}
		}
		return d
	}
	if !k.names.All() {
		d.addNames(k, k.names.List())
		return d
	}
	for name := range eitherName(k.from.Items(), k.to.Items()) {
		next, known := k.to.Get(name), k.known.Covers(name)
		if next != nil || known && !k.names.Has(name) {
			d.add(k.kind, name, known, k.from.Get(name), next)
		}
	}
	if listed := k.names.List(); len(listed) > 0 { // names that do not exist are answered
		d.addNames(k, slices.DeleteFunc(slices.Clone(listed), func(n string) bool { return k.to.Get(n) != nil }))
		d.sort()
	}
	return d
}

// addNames adds sorted names.
func (d *diff) addNames(k diffKey, names []string) {
	for _, name := range names {
		d.add(k.kind, name, k.known.Covers(name), k.from.Get(name), k.to.Get(name))
	}
}

// add adds one name: known means that the client has had, which may be nil; next is what it should
// have.
func (d *diff) add(kind *Kind, name string, known bool, had, next *resource.Resource) {
	if !known {
		had = nil
	}
	switch {
	case next != nil:
		if had == nil || had != next && had.Version() != next.Version() {
			d.changed = append(d.changed, next)
		}
		return
	case known && had == nil:
		return
	case had != nil:
		d.gone = append(d.gone, name)
	}
	if kind.Empty != nil {
		d.changed = append(d.changed, kind.Empty(name))
		return
	}
	d.removed = append(d.removed, name)
}

// eitherName yields every name of two sorted lists once, in order. same means that both have the
// same resource.
func eitherName(a, b []*resource.Resource) iter.Seq2[string, bool] {
	return func(yield func(name string, same bool) bool) {
		for len(a)+len(b) > 0 {
			var name string
			same := len(a) > 0 && len(b) > 0 && a[0] == b[0]
			if same || len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name {
				name = a[0].Name
			} else {
				name = b[0].Name
			}
			if same || len(a) > 0 && a[0].Name == name {
				a = a[1:]
			}
			if same || len(b) > 0 && b[0].Name == name {
				b = b[1:]
			}
			if !yield(name, same) {
				return
			}
		}
	}
}
