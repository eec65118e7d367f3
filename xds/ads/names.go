package ads

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// star is the name that stands for everything.
const star = "*"

// Names is what a client subscribed to: names, or everything, or both. Immutable and interned:
// within one Cache, equal subscriptions are one pointer. A nil Names is nothing.
type Names struct {
	all   bool
	list  []string // sorted, unique
	bytes int      // of all names
}

// All reports whether everything is subscribed, not only the names of List.
func (n *Names) All() bool { return n != nil && n.all }

// List returns the names that are subscribed by name, sorted. The caller must not change it.
func (n *Names) List() []string {
	if n == nil {
		return nil
	}
	return n.list
}

// Bytes is the length of all names of List.
func (n *Names) Bytes() int {
	if n == nil {
		return 0
	}
	return n.bytes
}

// Covers reports whether name is subscribed, by name or because everything is.
func (n *Names) Covers(name string) bool { return n.All() || n.Has(name) }

// Has reports whether name is subscribed by name.
func (n *Names) Has(name string) bool {
	_, ok := slices.BinarySearch(n.List(), name)
	return ok
}

// namesKey identifies a set of names whatever their order. Two sets have equal keys as rarely as
// two names have one 64-bit hash, and a client does not know the seed. So a request that repeats
// thousands of names does not have to be sorted.
type namesKey struct {
	sum   uint64 // of the hash of each name
	count int
	all   bool
}

// seed is used for all hashes; they never leave the process.
var seed = maphash.MakeSeed()

// add adds a name.
func (k *namesKey) add(name []byte) {
	if string(name) == star {
		k.all = true
		return
	}
	k.sum += maphash.Bytes(seed, name)
	k.count++
}

// interner returns one Names for equal subscriptions. Safe for concurrent use.
type interner struct {
	mu      sync.Mutex
	entries map[namesKey]weak.Pointer[Names] // guarded by mu
}

// of returns the subscription to list, in any order and with repetitions; "*" is everything.
func (in *interner) of(list []string) *Names {
	n := &Names{list: make([]string, 0, len(list))}
	for _, name := range list {
		if name == star {
			n.all = true
		} else {
			n.list = append(n.list, name)
		}
	}
	slices.Sort(n.list)
	n.list = slices.Clip(slices.Compact(n.list))
	key := namesKey{all: n.all}
	for _, name := range n.list {
		key.add([]byte(name))
		n.bytes += len(name)
	}
	if key == (namesKey{}) {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if old := in.entries[key].Value(); old != nil {
		return old
	}
	if in.entries == nil {
		in.entries = map[namesKey]weak.Pointer[Names]{}
	}
	in.entries[key] = weak.Make(n)
	runtime.AddCleanup(n, in.forget, key)
	return n
}

func (in *interner) find(key namesKey) *Names {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.entries[key].Value()
}

// forget drops a subscription that was collected, unless there is a new one.
func (in *interner) forget(key namesKey) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.entries[key].Value() == nil {
		delete(in.entries, key)
	}
}

// ofRequest returns what a request subscribes to.
func (in *interner) ofRequest(r *Request) *Names {
	if n := in.find(r.subscribed); n != nil {
		return n
	}
	return in.of(r.Subscribe())
}

// everything returns the subscription to all names.
func (in *interner) everything() *Names { return in.of([]string{star}) }

// union returns what a or b covers.
func (in *interner) union(a, b *Names) *Names {
	if a == b || b == nil {
		return a
	}
	return in.of(slices.Concat(a.words(), b.words()))
}

// minus returns a without what b names.
func (in *interner) minus(a, b *Names) *Names {
	if a == nil || b == nil {
		return a
	}
	return in.of(slices.DeleteFunc(a.words(), func(name string) bool {
		return b.Has(name) || name == star && b.all
	}))
}

// words are the names of n with "*" for everything.
func (n *Names) words() []string {
	list := slices.Clone(n.List())
	if n.All() {
		list = append(list, star)
	}
	return list
}
