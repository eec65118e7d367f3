package ads

import (
	"slices"
	"strings"
	"sync"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// diffKey says between what a diff lies: a client that has from as far as known covers it is to
// have to as far as names cover it.
type diffKey struct {
	from, to     *resource.Layer
	known, names *Names
	kind         *Kind
}

// diff is what to tell a client so that it has another layer. Immutable, shared between streams.
type diff struct {
	changed []*resource.Resource // sorted by name
	removed []string             // sorted; names that do not exist, or no more
	gone    []string             // sorted; names that the client has and that do not exist any more

	deltaOnce, stateOnce sync.Once
	delta, state         encoding
}

// empty says whether there is nothing to tell.
func (d *diff) empty() bool { return d == nil || len(d.changed) == 0 && len(d.removed) == 0 }

// find returns what the diff says of name: the resource to send, or that it is removed.
func (d *diff) find(name string) (r *resource.Resource, removed bool) {
	if d == nil {
		return nil, false
	}
	if i, ok := search(d.changed, name); ok {
		return d.changed[i], false
	}
	_, removed = slices.BinarySearch(d.removed, name)
	return nil, removed
}

// encoded are the elements of a response that carries the whole diff; layer is the one that it
// leads to.
func (d *diff) encoded(c *Cache, layer *resource.Layer, states bool) [][]byte {
	if states {
		d.stateOnce.Do(func() { d.state = c.encode(layer, d.changed, nil, true) })
		return d.state.parts
	}
	d.deltaOnce.Do(func() { d.delta = c.encode(layer, d.changed, d.removed, false) })
	return d.delta.parts
}

// compare computes a diff.
func compare(k diffKey) *diff {
	d := &diff{}
	if k.names.All() {
		d.everything(k)
	}
	from, to := cursor{items: k.from.Items()}, cursor{items: k.to.Items()}
	for _, name := range k.names.List() {
		next := to.get(name)
		if next != nil && k.names.All() {
			continue // everything has it already
		}
		known := k.known.Covers(name)
		var had *resource.Resource
		if known {
			had = from.get(name)
		}
		d.add(k.kind, name, known, had, next)
	}
	if k.names.All() && len(k.names.List()) > 0 {
		slices.SortFunc(d.changed, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
		slices.Sort(d.removed)
		slices.Sort(d.gone)
	}
	return d
}

// everything compares the layers without regard to names that are subscribed by name and do not
// exist.
func (d *diff) everything(k diffKey) {
	from, to := k.from.Items(), k.to.Items()
	for len(from) > 0 || len(to) > 0 {
		switch {
		case len(to) == 0 || len(from) > 0 && from[0].Name < to[0].Name:
			if name := from[0].Name; k.known.Covers(name) && !k.names.Has(name) {
				d.removed = append(d.removed, name)
				d.gone = append(d.gone, name)
			}
			from = from[1:]
		case len(from) == 0 || to[0].Name < from[0].Name:
			d.changed = append(d.changed, to[0])
			to = to[1:]
		default:
			known := k.known.Covers(to[0].Name)
			if !known || !same(from[0], to[0]) {
				d.changed = append(d.changed, to[0])
			}
			from, to = from[1:], to[1:]
		}
	}
}

// add takes in one name: known says whether the client's state of it is had, next is what it is to
// have.
func (d *diff) add(kind *Kind, name string, known bool, had, next *resource.Resource) {
	switch {
	case next != nil:
		if !known || had == nil || !same(had, next) {
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

// same says whether two resources of one name are equal for a client.
func same(a, b *resource.Resource) bool { return a == b || a.Version() == b.Version() }

// search finds a name in resources that are sorted by name.
func search(items []*resource.Resource, name string) (int, bool) {
	return slices.BinarySearchFunc(items, name, func(r *resource.Resource,
		n string) int {
		return strings.Compare(r.Name, n)
	})
}

// cursor looks up ascending names in resources that are sorted by name; the cost of a look-up is
// the logarithm of the way from the last one.
type cursor struct{ items []*resource.Resource }

// get returns the resource of that name, or nil. The name must not sort before the last one asked
// for.
func (c *cursor) get(name string) *resource.Resource {
	step := 1
	for step < len(c.items) && c.items[step].Name < name {
		step *= 2
	}
	i, ok := search(c.items[:min(step+1, len(c.items))], name)
	c.items = c.items[i:]
	if !ok {
		return nil
	}
	return c.items[0]
}
