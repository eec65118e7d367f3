package ads

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// pending is a response without an answer.
type pending struct {
	change
	number uint64
}

// send makes the response of a plan.
func (s *Subscription) send(p *plan, now time.Time) *Response {
	s.adopt(p, now)
	s.answer = false
	return s.respond(p.change)
}

// sendAlone makes the response of a plan for one name.
func (s *Subscription) sendAlone(p *plan, name string) *Response {
	sent, _ := p.own().find(name)
	s.keep(name, &nameState{is: deferred, had: sent, hadKnown: true})
	return s.respond(p.change)
}

// respond numbers and encodes a response, and tracks it until it is acknowledged.
func (s *Subscription) respond(c change) *Response {
	s.count++
	f := &pending{c, s.count}
	s.pending = append(s.pending, f)
	return s.encode(f)
}

// reject takes in that the client rejected a response, of which it may have applied a part. What it
// did not apply is sent again: what its message names, or else every resource, in a response of its
// own. A resource that is rejected alone is the culprit. Of clusters and listeners Envoy applies all
// that is right and names the culprits. So those are not sent again: Envoy accepts a cluster that it
// has rejected, and still does not use it.
func (s *Subscription) reject(f *pending, message string, now time.Time) {
	var changed []*resource.Resource
	resources, _ := f.size()
	whole := s.sotw && s.kind.Whole
	for name, r := range f.all() {
		switch {
		case r == nil && (whole || resources == 0): // removals alone cannot be wrong
		case !s.decides(f, name):
		case r == nil:
			s.keep(name, &nameState{is: unknown})
		default:
			changed = append(changed, r)
		}
	}
	named := slices.ContainsFunc(changed, func(r *resource.Resource) bool { return mentions(message, r.Name) })
	parts := messageParts(message, changed)
	for _, r := range changed {
		mentioned := mentions(message, r.Name)
		switch {
		case s.kind.Whole && mentioned, !whole && resources == 1:
			patches, since := r.PatchesSince(s.accepted.Get(r.Name))
			s.keep(r.Name, &nameState{is: rejected, rejection: &Rejected{Name: r.Name, Version: r.Version(),
				Message: cmp.Or(parts[r.Name], message), At: now, Patches: patches, Changed: since}})
		case whole: // it was applied
		default:
			s.keep(r.Name, &nameState{is: unknown, alone: mentioned || !named})
		}
	}
}

// decides reports whether the answer to a response is about a name: it is still subscribed, and
// not in a later response.
func (s *Subscription) decides(f *pending, name string) bool {
	return s.names.Covers(name) && !slices.ContainsFunc(s.pending, func(later *pending) bool {
		return later.number > f.number && later.holds(name)
	})
}

// messageParts returns what a message says of each resource. Envoy writes "NAME: reason" for each one.
// What does not have this form has no part.
func messageParts(message string, resources []*resource.Resource) map[string]string {
	starts := map[int]string{}
	for _, r := range resources {
		if at := indexWord(message, r.Name+": "); at >= 0 {
			starts[at] = r.Name
		}
	}
	parts := map[string]string{}
	end := len(message)
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(starts))) {
		parts[starts[at]] = strings.TrimRight(message[at:end], ", \n")
		end = at
	}
	return parts
}

// mentions reports whether a client's message names a resource, as a word of its own.
func mentions(message, name string) bool { return indexWord(message, name) >= 0 }

// indexWord returns where a message has a word; negative: nowhere. A word may end with what is not a
// part of names.
func indexWord(message, word string) int {
	inName := func(b byte) bool {
		return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80 ||
			strings.IndexByte("_-|", b) >= 0
	}
	for at := 0; word != ""; at++ {
		i := strings.Index(message[at:], word)
		if i < 0 {
			return -1
		}
		at += i
		end := at + len(word)
		begins := at == 0 || !inName(message[at-1])
		if begins && (end == len(message) || !inName(message[end]) || !inName(message[end-1])) {
			return at
		}
	}
	return -1
}
