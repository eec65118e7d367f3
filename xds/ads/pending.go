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
	alone  bool // it has one resource that was taken out of a rejected response, or one secret

	// What the client had before: from as far as known covers it, but for the names in states.
	from   resource.Set
	known  *Names
	states map[string]nameState
	to     resource.Set
}

// holds reports whether name is in the response.
func (p *pending) holds(name string) bool {
	if r, removed := p.shared.find(name); r != nil || removed {
		return true
	}
	return slices.ContainsFunc(p.changed, func(r *resource.Resource) bool { return r.Name == name }) ||
		slices.Contains(p.removed, name)
}

// had is what the client had of name before the response, nil for nothing; known means that this
// is certain.
func (p *pending) had(name string, s *Subscription) (had *resource.Resource, known bool) {
	if st, ok := p.states[name]; ok {
		return st.had, st.hadKnown
	}
	if p.known.Covers(name) {
		return p.from.Get(name), true
	}
	return nil, !s.resumed
}

// keep remembers the state of a name before the response.
func (p *pending) keep(name string, st nameState) {
	if p.states == nil {
		p.states = map[string]nameState{}
	}
	p.states[name] = st
}

// send makes the response of a plan.
func (s *Subscription) send(p *plan, now time.Time) *Response {
	f := &pending{change: p.change, from: s.have, known: s.known, to: s.To}
	if len(s.states) > 0 {
		for name := range p.names() {
			if st := s.states[name]; st != nil {
				f.keep(name, *st)
			}
		}
	}
	s.adopt(p, now)
	s.answer = false
	return s.respond(f)
}

// sendAlone makes the response for one name of the queue.
func (s *Subscription) sendAlone(p *plan, name string) *Response {
	f := &pending{change: p.change, alone: true, from: s.have, known: s.known, to: s.To}
	f.keep(name, *s.states[name])
	*s.states[name] = nameState{is: deferred, hadKnown: true}
	if len(p.changed) > 0 {
		s.states[name].had = p.changed[0]
	}
	return s.respond(f)
}

// respond numbers and encodes a response, and tracks it until it is acknowledged.
func (s *Subscription) respond(f *pending) *Response {
	s.count++
	f.number = s.count
	s.pending = append(s.pending, f)
	return s.encode(f)
}

// reject takes in that the client rejected a response, of which it may have applied a part. What it
// did not apply is sent again: what its message names, or else every resource, in a response of its
// own. A resource that is rejected alone is the culprit. Envoy applies all that is right in a whole
// set, so there the rest counts as accepted.
func (s *Subscription) reject(f *pending, message string, now time.Time) {
	var changed []*resource.Resource
	for r := range f.sent() {
		if s.decides(f, r.Name) {
			changed = append(changed, r)
		}
	}
	whole := s.sotw && s.kind.Whole
	single := f.resources() == 1 && !s.unexplained
	named := slices.ContainsFunc(changed, func(r *resource.Resource) bool { return mentions(message, r.Name) })
	s.unexplained = s.unexplained || whole && (!single || len(s.pending) > 0)
	for _, r := range changed {
		mentioned := mentions(message, r.Name)
		switch {
		case single || whole && mentioned:
			st := s.restore(f, r.Name, rejected)
			st.version, st.message, st.at = r.Version(), message, now
		case whole: // it was applied
		default:
			st := s.restore(f, r.Name, unknown)
			if st.alone = mentioned || !named; st.alone {
				s.queue = append(s.queue, r.Name)
			}
		}
	}
	if whole || f.resources() == 0 {
		return // removals cannot be wrong
	}
	for _, list := range [][]string{f.sharedRemoved(), f.removed} {
		for _, name := range list {
			if s.decides(f, name) {
				s.restore(f, name, unknown)
			}
		}
	}
}

// decides reports whether the answer to a response is about a name: it is still subscribed, and
// not in a later response. A later response inherits what the client had.
func (s *Subscription) decides(f *pending, name string) bool {
	if !s.names.Covers(name) {
		return false
	}
	for _, later := range s.pending {
		if later.number > f.number && later.holds(name) {
			had, _ := f.had(name, s) // or what it applied of f
			later.keep(name, nameState{had: had})
			return false
		}
	}
	return true
}

// restore gives a name of a rejected response a state, with what the client had before. If it is
// not the culprit for certain, the client may have applied it.
func (s *Subscription) restore(f *pending, name string, is resourceState) *nameState {
	st := s.set(name, is)
	*st = nameState{is: is}
	st.had, st.hadKnown = f.had(name, s)
	st.hadKnown = st.hadKnown && is == rejected
	return st
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
