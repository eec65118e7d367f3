package intern

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// List is an immutable list with identity: two lists of one Lists are equal exactly when their
// pointers are. A nil List is empty.
type List[T comparable] struct{ items []T }

// Items returns the elements. The caller must not change them.
func (l *List[T]) Items() []T {
	if l == nil {
		return nil
	}
	return l.items
}

// Len returns the number of elements.
func (l *List[T]) Len() int { return len(l.Items()) }

// Lists returns the same List for equal elements. The zero value is ready. Safe for concurrent use.
type Lists[T comparable] struct {
	mu      sync.Mutex
	buckets map[uint64][]weak.Pointer[List[T]] // guarded by mu
}

// seed is for the whole process: hashes never leave it.
var seed = maphash.MakeSeed()

// Of returns the list of items, or nil if there are none. It keeps items, so the caller must not
// change them.
func (ls *Lists[T]) Of(items []T) *List[T] {
	if len(items) == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range items {
		maphash.WriteComparable(&h, items[i])
	}
	sum := h.Sum64()

	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, w := range ls.buckets[sum] {
		if l := w.Value(); l != nil && slices.Equal(l.items, items) {
			return l
		}
	}
	l := &List[T]{slices.Clip(items)}
	if ls.buckets == nil {
		ls.buckets = map[uint64][]weak.Pointer[List[T]]{}
	}
	ls.buckets[sum] = append(ls.buckets[sum], weak.Make(l))
	runtime.AddCleanup(l, ls.forget, sum)
	return l
}

// forget removes collected lists from a bucket.
func (ls *Lists[T]) forget(sum uint64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	kept := slices.DeleteFunc(ls.buckets[sum], func(w weak.Pointer[List[T]]) bool { return w.Value() == nil })
	if len(kept) == 0 {
		delete(ls.buckets, sum)
		return
	}
	ls.buckets[sum] = kept
}
