package ads

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Subscribes yields the names that a request subscribes to, and everything says whether it asks for everything by "*".
func (r *Request) Subscribes() (names iter.Seq[string], everything bool) {
	list, all := r.named(r.subscribe)
	return texts(list), all
}

// Unsubscribes yields the names that a request drops, in the same way. State of the world drops by not repeating.
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

// Without returns the request as if it did not subscribe to the names that drop says.
func (rd *Reader) Without(r *Request, drop func(name string) bool) (*Request, error) {
	var b []byte
	for rest := r.raw; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		m := protowire.ConsumeFieldValue(num, typ, rest[n:])
		field := rest[:n+m]
		rest = rest[n+m:]
		if num == r.subscribe && typ == protowire.BytesType {
			if name, _ := protowire.ConsumeBytes(field[n:]); drop(string(name)) {
				continue
			}
		}
		b = append(b, field...)
	}
	return rd.Read(b)
}

// Standing is how far a client is with one name.
type Standing uint8

const (
	// Unwanted: the client does not ask for it.
	Unwanted Standing = iota
	// Pending: it is to be sent, on its way, or to be sent again.
	Pending
	// Held: the client acknowledged what there is of it, or that there is nothing.
	Held
	// Refused: the client does not take it as it is.
	Refused
)

// Standing says how far the client is with a name on the way to to.
func (s *Subscription) Standing(name string, to resource.Set) Standing {
	if !s.started || !s.names.Covers(name) {
		return Unwanted
	}
	next := to.Get(name)
	if s.Flying(name) {
		return Pending
	}
	if e := s.exceptions[name]; e != nil {
		switch {
		case e.standing == refused && next != nil && next.Version() == e.version:
			return Refused
		case e.standing == tainted && e.words != "":
			return Refused
		case e.standing == tainted:
			return Held
		}
		return Pending
	}
	had := s.had(name)
	if s.known.Covers(name) && (had == nil && next == nil || had != nil && next != nil && same(had, next)) {
		return Held
	}
	return Pending
}

// Arrivals yields the names that are on their way, or queued, to a client that did not have them before.
func (s *Subscription) Arrivals() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range s.flights {
			f := &s.flights[i]
			for r := range eachOf(f) {
				if old, _ := f.before(r.Name, s.fresh); old == nil && !yield(r.Name) {
					return
				}
			}
		}
		for name, e := range s.exceptions {
			if e.standing == queued && e.old == nil && !yield(name) {
				return
			}
		}
	}
}
