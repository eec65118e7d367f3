package ads

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// Names is what a client subscribed to: names, or everything, or both. Immutable and interned:
// within one Cache equal subscriptions are one pointer. A nil Names is nothing.
type Names struct {
	all   bool
	list  []string // sorted, unique
	bytes int      // of all names

	once  sync.Once
	table []uint32 // open addressing: index into list plus one; made on first use

	answersCost atomic.Int64 // see answers, plus one; 0: not counted yet
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

// Bytes is how long the names of List are together.
func (n *Names) Bytes() int {
	if n == nil {
		return 0
	}
	return n.bytes
}

// Covers says whether name is subscribed, by name or because everything is.
func (n *Names) Covers(name string) bool { return n.All() || n.Has(name) }

// Has says whether name is subscribed by name.
func (n *Names) Has(name string) bool {
	return n != nil && len(n.list) > 0 && n.find(name, maphash.String(seed, name)) >= 0
}

// seed is one for the process: hashes never leave it.
var seed = maphash.MakeSeed()

// checksum tells sets of names apart whatever their order: two sums over a hash of each name, with
// a seed that nobody knows, and how many there are. Equal checksums mean equal sets: that they do
// not is as likely as two names with one 64-bit hash, and a client cannot look for them. So a
// request that repeats thousands of names is recognised without looking at each of them again.
type checksum struct {
	plain, mixed uint64
	count        int
	all          bool
}

// add takes in the hash of one name.
func (c *checksum) add(hash uint64) {
	c.plain += hash
	m := (hash ^ hash>>32) * 0x9e3779b97f4a7c15
	c.mixed += m ^ m>>29
	c.count++
}

// join takes in all that another one has.
func (c *checksum) join(o checksum) {
	c.plain += o.plain
	c.mixed += o.mixed
	c.count += o.count
	c.all = c.all || o.all
}

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
	entries map[checksum]weak.Pointer[Names] // guarded by mu
}

// of returns the subscription to all (or not) and names, in whatever order and however often they
// come. The bytes are copied when they are new.
func (in *interner) of(all bool, names iter.Seq[[]byte]) *Names {
	sum := checksum{all: all}
	for b := range names {
		sum.add(maphash.Bytes(seed, b))
	}
	if sum == (checksum{}) {
		return nil
	}
	if n := in.lookup(sum); n != nil {
		return n
	}
	list := make([]string, 0, sum.count)
	for b := range names {
		list = append(list, string(b))
	}
	return in.ofList(all, list)
}

// ofList is of with strings, whose slice it keeps.
func (in *interner) ofList(all bool, list []string) *Names {
	slices.Sort(list)
	list = slices.Clip(slices.Compact(list))
	sum := checksum{all: all}
	for _, s := range list {
		sum.add(maphash.String(seed, s))
	}
	if sum == (checksum{}) {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := in.entries[sum].Value(); n != nil {
		return n
	}
	n := &Names{all: all, list: list}
	for _, s := range list {
		n.bytes += len(s)
	}
	if in.entries == nil {
		in.entries = map[checksum]weak.Pointer[Names]{}
	}
	in.entries[sum] = weak.Make(n)
	runtime.AddCleanup(n, in.forget, sum)
	return n
}

// lookup returns the subscription of that checksum, or nil.
func (in *interner) lookup(sum checksum) *Names {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.entries[sum].Value()
}

// forget drops a subscription that was collected, unless it is there again.
func (in *interner) forget(sum checksum) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.entries[sum].Value() == nil {
		delete(in.entries, sum)
	}
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
