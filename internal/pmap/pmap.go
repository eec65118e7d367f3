package pmap

import (
	"cmp"
	"hash/maphash"
	"iter"
)

// Key is the key of a map, with an order.
type Key[K any] interface {
	comparable
	// Compare returns a negative number, zero or a positive number if the key sorts before, equal
	// to or after other.
	Compare(other K) int
}

// String is a text key.
type String string

// Compare orders by bytes.
func (s String) Compare(other String) int { return cmp.Compare(s, other) }

// seed makes the shape unpredictable for those who choose keys. It is the same for the whole
// process, so that equal contents have equal shapes.
var seed = maphash.MakeSeed()

// Map is an immutable ordered map. The zero value is empty. Equal (==) maps have equal contents.
// Different maps may also have equal contents; see Diff.
type Map[K Key[K], V comparable] struct{ root *node[K, V] }

// node is one entry of a treap: ordered by key, and a heap by priority.
type node[K Key[K], V comparable] struct {
	left, right *node[K, V]
	key         K
	value       V
	priority    uint64
	size        int
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.root.len() }

// Get returns the value of k, and whether there is one.
func (m Map[K, V]) Get(k K) (V, bool) {
	for n := m.root; n != nil; {
		switch c := k.Compare(n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	var zero V
	return zero, false
}

// At returns the value of k, or the zero value.
func (m Map[K, V]) At(k K) V {
	v, _ := m.Get(k)
	return v
}

// With returns the map with k set to v. It returns m if k has that value already.
func (m Map[K, V]) With(k K, v V) Map[K, V] {
	if old, ok := m.Get(k); ok && old == v {
		return m
	}
	return Map[K, V]{insert(m.root, k, v, maphash.Comparable(seed, k))}
}

// Without returns the map without k. It returns m if m does not have k.
func (m Map[K, V]) Without(k K) Map[K, V] {
	if _, ok := m.Get(k); !ok {
		return m
	}
	return Map[K, V]{remove(m.root, k)}
}

// All yields the entries in the order of their keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.root.walk(yield) }
}

// From yields the entries whose key is not before k, in order.
func (m Map[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.root.walkFrom(k, yield) }
}

// Change is one difference between two maps.
type Change[K, V any] struct {
	Key      K
	Old, New V
	// HadOld and HasNew distinguish an absent value from a zero one.
	HadOld, HasNew bool
}

// Diff yields the changes from old to m, in the order of keys. It skips shared parts.
func (m Map[K, V]) Diff(old Map[K, V]) iter.Seq[Change[K, V]] {
	return func(yield func(Change[K, V]) bool) { diff(old.root, m.root, yield) }
}

func (n *node[K, V]) len() int {
	if n == nil {
		return 0
	}
	return n.size
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (n *node[K, V]) walkFrom(k K, yield func(K, V) bool) bool {
	if n == nil {
		return true
	}
	if k.Compare(n.key) > 0 {
		return n.right.walkFrom(k, yield)
	}
	return n.left.walkFrom(k, yield) && yield(n.key, n.value) && n.right.walk(yield)
}

// above reports whether a node with priority p and key k is above n.
func above[K Key[K], V comparable](p uint64, k K, n *node[K, V]) bool {
	return p > n.priority || p == n.priority && k.Compare(n.key) < 0
}

func with[K Key[K], V comparable](n, left, right *node[K, V]) *node[K, V] {
	return &node[K, V]{left: left, right: right, key: n.key, value: n.value, priority: n.priority,
		size: left.len() + right.len() + 1}
}

func insert[K Key[K], V comparable](n *node[K, V], k K, v V, p uint64) *node[K, V] {
	if n == nil {
		return &node[K, V]{key: k, value: v, priority: p, size: 1}
	}
	c := k.Compare(n.key)
	switch {
	case c == 0:
		return &node[K, V]{left: n.left, right: n.right, key: k, value: v, priority: n.priority, size: n.size}
	case above(p, k, n):
		left, right, _ := split(n, k)
		return &node[K, V]{left: left, right: right, key: k, value: v, priority: p, size: left.len() + right.len() + 1}
	case c < 0:
		return with(n, insert(n.left, k, v, p), n.right)
	default:
		return with(n, n.left, insert(n.right, k, v, p))
	}
}

// split returns the entries before k, those after k, and the node of k.
func split[K Key[K], V comparable](n *node[K, V], k K) (left, right, at *node[K, V]) {
	if n == nil {
		return nil, nil, nil
	}
	switch c := k.Compare(n.key); {
	case c == 0:
		return n.left, n.right, n
	case c < 0:
		l, r, at := split(n.left, k)
		if l == nil && at == nil {
			return nil, n, nil
		}
		return l, with(n, r, n.right), at
	default:
		l, r, at := split(n.right, k)
		if r == nil && at == nil {
			return n, nil, nil
		}
		return with(n, n.left, l), r, at
	}
}

func remove[K Key[K], V comparable](n *node[K, V], k K) *node[K, V] {
	switch c := k.Compare(n.key); {
	case c < 0:
		return with(n, remove(n.left, k), n.right)
	case c > 0:
		return with(n, n.left, remove(n.right, k))
	default:
		return join(n.left, n.right)
	}
}

// join returns the entries of a and b. All keys of a sort before those of b.
func join[K Key[K], V comparable](a, b *node[K, V]) *node[K, V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case above(a.priority, a.key, b):
		return with(a, a.left, join(a.right, b))
	default:
		return with(b, join(a, b.left), b.right)
	}
}

func diff[K Key[K], V comparable](a, b *node[K, V], yield func(Change[K, V]) bool) bool {
	if a == b {
		return true
	}
	if b == nil {
		return a.walk(func(k K, v V) bool { return yield(Change[K, V]{Key: k, Old: v, HadOld: true}) })
	}
	if a != nil && a.key != b.key && above(a.priority, a.key, b) {
		// the root of a is above all of b: split b at it
		left, right, _ := split(b, a.key)
		return diff(a.left, left, yield) &&
			yield(Change[K, V]{Key: a.key, Old: a.value, HadOld: true}) &&
			diff(a.right, right, yield)
	}
	left, right, at := split(a, b.key)
	if !diff(left, b.left, yield) {
		return false
	}
	switch {
	case at == nil:
		if !yield(Change[K, V]{Key: b.key, New: b.value, HasNew: true}) {
			return false
		}
	case at.value != b.value:
		if !yield(Change[K, V]{Key: b.key, Old: at.value, New: b.value, HadOld: true, HasNew: true}) {
			return false
		}
	}
	return diff(right, b.right, yield)
}
