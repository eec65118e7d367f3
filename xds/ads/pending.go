package ads

import (
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
	for _, r := range changed {
		mentioned := mentions(message, r.Name)
		switch {
		case s.kind.Whole && mentioned, !whole && resources == 1:
			s.keep(r.Name, &nameState{is: rejected, rejection: &Rejected{r.Name, r.Version(), message, now, r.Patches}})
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

// mentions reports whether a client's message names a resource, as a word of its own.
func mentions(message, name string) bool {
	inName := func(b byte) bool {
		return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || strings.IndexByte("_-|", b) >= 0 ||
			b >= 0x80
	}
	for at := 0; name != ""; at++ {
		i := strings.Index(message[at:], name)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(name)
		if (at == 0 || !inName(message[at-1])) && (end == len(message) || !inName(message[end])) {
			return true
		}
	}
	return false
}
