package ads

import "iter"

// Subscribes yields the names that a request subscribes to, and everything says whether it asks for
// everything by "*".
func (r *Request) Subscribes() (names iter.Seq[string], everything bool) {
	list, all := r.named(r.subscribe)
	return texts(list), all
}

// Unsubscribes yields the names that a request drops, in the same way. State of the world drops by
// not repeating.
func (r *Request) Unsubscribes() (names iter.Seq[string], everything bool) {
	if r.unsubscribe == 0 {
		return func(func(string) bool) {}, false
	}
	list, all := r.named(r.unsubscribe)
	return texts(list), all
}

// Renames says whether a request subscribes to names, or drops some.
func (r *Request) Renames() bool { return r.subscribes+r.unsubscribes > 0 }

func texts(in iter.Seq[[]byte]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for b := range in {
			if !yield(string(b)) {
				return
			}
		}
	}
}
