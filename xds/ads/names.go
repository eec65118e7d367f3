package ads

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// Names is what a client subscribed to: names, or everything, or both. Immutable and interned: within
// one Cache equal subscriptions are one pointer. A nil Names is nothing.
type Names struct {
	all  bool
	list []string // sorted, unique
	sum  uint64   // of the hashes of the names, whatever their order

	once  sync.Once
	table []uint32 // open addressing: index into list plus one; made on first use
}

// All says whether everything is subscribed, not only the names of List.
func (n *Names) All() bool { return n != nil && n.all }

// List are the names that are subscribed by name, sorted, not to be changed.
func (n *Names) List() []string {
	if n == nil {
		return nil
	}
	return n.list
}

// Covers says whether name is subscribed, by name or because everything is.
func (n *Names) Covers(name string) bool { return n.All() || n.Has(name) }

// Has says whether name is subscribed by name.
func (n *Names) Has(name string) bool {
	return n != nil && len(n.list) > 0 && n.find(name, maphash.String(seed, name)) >= 0
}

// seed is one for the process: hashes never leave it.
var seed = maphash.MakeSeed()

// wild is added to the sum of a subscription to everything.
const wild = 0x9e3779b97f4a7c15

// find returns the place of a name with that hash in list, or -1.
func (n *Names) find(name string, hash uint64) int {
	n.once.Do(n.index)
	mask := uint64(len(n.table) - 1)
	for at := hash & mask; n.table[at] != 0; at = (at + 1) & mask {
		if i := int(n.table[at] - 1); n.list[i] == name {
			return i
		}
	}
	return -1
}

// index makes the table, at most half full.
func (n *Names) index() {
	n.table = make([]uint32, 1<<bits.Len(uint(2*len(n.list))))
	mask := uint64(len(n.table) - 1)
	for i, name := range n.list {
		at := maphash.String(seed, name) & mask
		for n.table[at] != 0 {
			at = (at + 1) & mask
		}
		n.table[at] = uint32(i + 1)
	}
}

// interner hands out one Names for equal subscriptions. Safe for concurrent use.
type interner struct {
	mu      sync.Mutex
	buckets map[uint64][]weak.Pointer[Names] // guarded by mu
}

// of returns the subscription to all (or not) and names, in whatever order and however often they come.
// The bytes are copied when they are new.
func (in *interner) of(all bool, names iter.Seq[[]byte]) *Names {
	sum, count := base(all), 0
	for b := range names {
		sum += maphash.Bytes(seed, b)
		count++
	}
	if !all && count == 0 {
		return nil
	}
	if n := in.lookup(sum, func(n *Names) bool { return n.all == all && n.same(names, count) }); n != nil {
		return n
	}
	list := make([]string, 0, count)
	for b := range names {
		list = append(list, string(b))
	}
	return in.ofList(all, list)
}

// ofList is of with strings, whose slice it keeps.
func (in *interner) ofList(all bool, list []string) *Names {
	slices.Sort(list)
	list = slices.Clip(slices.Compact(list))
	if !all && len(list) == 0 {
		return nil
	}
	sum := base(all)
	for _, s := range list {
		sum += maphash.String(seed, s)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, w := range in.buckets[sum] {
		if n := w.Value(); n != nil && n.all == all && slices.Equal(n.list, list) {
			return n
		}
	}
	n := &Names{all: all, list: list, sum: sum}
	if in.buckets == nil {
		in.buckets = map[uint64][]weak.Pointer[Names]{}
	}
	in.buckets[sum] = append(in.buckets[sum], weak.Make(n))
	runtime.AddCleanup(n, in.forget, sum)
	return n
}

// lookup returns the subscription of that sum for which same holds, or nil.
func (in *interner) lookup(sum uint64, same func(*Names) bool) *Names {
	in.mu.Lock()
	bucket := slices.Clone(in.buckets[sum])
	in.mu.Unlock()
	for _, w := range bucket {
		if n := w.Value(); n != nil && same(n) {
			return n
		}
	}
	return nil
}

// forget drops what was collected from one bucket.
func (in *interner) forget(sum uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	kept := slices.DeleteFunc(in.buckets[sum], func(w weak.Pointer[Names]) bool { return w.Value() == nil })
	if len(kept) == 0 {
		delete(in.buckets, sum)
		return
	}
	in.buckets[sum] = kept
}

// same says whether names, of which there are count, are the list in any order, none twice.
func (n *Names) same(names iter.Seq[[]byte], count int) bool {
	if count != len(n.list) {
		return false
	}
	seen := make([]uint64, count/64+1)
	for b := range names {
		i := n.find(string(b), maphash.Bytes(seed, b))
		if i < 0 || seen[i/64]&(1<<(i%64)) != 0 {
			return false
		}
		seen[i/64] |= 1 << (i % 64)
	}
	return true
}

// base is the sum of no names.
func base(all bool) uint64 {
	if all {
		return wild
	}
	return 0
}

// union returns what a or b covers.
func (in *interner) union(a, b *Names) *Names {
	switch {
	case a == b || b == nil:
		return a
	case a == nil:
		return b
	}
	var fresh []string
	for _, s := range b.list {
		if !a.Has(s) {
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 0 && (a.all || !b.all) {
		return a
	}
	return in.ofList(a.all || b.all, append(fresh, a.list...))
}

// minus returns a without the names of b, and without everything else too when b is everything.
func (in *interner) minus(a, b *Names) *Names {
	if a == nil || b == nil {
		return a
	}
	kept := make([]string, 0, len(a.list))
	for _, s := range a.list {
		if !b.Has(s) {
			kept = append(kept, s)
		}
	}
	all := a.all && !b.all
	if all == a.all && len(kept) == len(a.list) {
		return a
	}
	return in.ofList(all, kept)
}

// common returns what both a and b cover.
func (in *interner) common(a, b *Names) *Names {
	switch {
	case a == b:
		return a
	case a == nil || b == nil:
		return nil
	}
	kept := make([]string, 0, min(len(a.list), len(b.list)))
	for _, s := range a.list {
		if b.Covers(s) {
			kept = append(kept, s)
		}
	}
	if a.all {
		kept = append(kept, b.list...)
	}
	return in.ofList(a.all && b.all, kept)
}
