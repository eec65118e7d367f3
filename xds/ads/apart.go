package ads

import (
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// After a rejection nothing in the response is known: Envoy may have applied some of it. Its
// resources go into groups that are sent again one by one, smaller each time, until the culprit
// stands alone.

// maxSuspects is how many resources a client's words may name before they count as no hint.
const maxSuspects = 32

// isolate queues what a rejected response held. The words of the client are a hint: what they name
// is sent alone, the rest together. Without a hint the response is halved.
func (s *Subscription) isolate(changed, removed []string, words string) {
	for _, name := range changed {
		s.except(name, queued)
	}
	for _, name := range removed {
		s.except(name, queued)
	}
	var suspects, rest []string
	for _, name := range changed {
		if mentions(words, name) {
			suspects = append(suspects, name)
		} else {
			rest = append(rest, name)
		}
	}
	var groups [][]string
	if len(suspects) == 0 || len(suspects) > maxSuspects || len(rest)+len(removed) == 0 {
		half := (len(changed) + 1) / 2
		groups = [][]string{changed[:half], changed[half:]}
		groups[0] = append(slices.Clip(groups[0]), removed...)
	} else {
		groups = [][]string{append(rest, removed...)}
		for _, name := range suspects {
			groups = append(groups, []string{name})
		}
	}
	groups = slices.DeleteFunc(groups, func(g []string) bool { return len(g) == 0 })
	s.queue = append(groups, s.queue...)
}

// separate queues what a plan sends, each resource by itself.
func (s *Subscription) separate(p *plan) {
	for r := range p.sent() {
		s.except(r.Name, queued)
		s.queue = append(s.queue, []string{r.Name})
	}
	s.answer = false
}

// mentions says whether a client's words name a resource: as a word of its own.
func mentions(words, name string) bool {
	if name == "" {
		return false
	}
	for at := 0; ; {
		i := strings.Index(words[at:], name)
		if i < 0 {
			return false
		}
		i += at
		if end := i + len(name); (i == 0 || !inName(words[i-1])) && (end == len(words) || !inName(words[end])) {
			return true
		}
		at = i + 1
	}
}

// inName says whether a byte may stand inside the name of a resource.
func inName(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b == '-' || b == '|' ||
		b >= 0x80
}

// alone returns the response for the next group, or nil: there is none, or what is on its way comes
// first.
func (s *Subscription) alone(to resource.Set, w Waits, now time.Time) *Response {
	for i := range s.flights {
		if s.flights[i].apart && !s.kind.Single || s.states && s.kind.Whole {
			return nil
		}
	}
	for i := 0; i < len(s.queue); {
		group := s.queue[i]
		if s.kind.Single && slices.ContainsFunc(group, s.Flying) {
			i++ // what is on its way is judged first
			continue
		}
		s.queue = slices.Delete(s.queue, i, i+1)
		if len(s.queue) == 0 {
			s.queue = nil
		}
		if p := s.planGroup(group, to, w); p != nil {
			f := flight{changed: p.changed, removed: p.removed, apart: true, from: s.have, known: s.known, to: to,
				at: now}
			r := s.respond(to, p, p)
			f.spoilt = r.spoilt
			s.launch(f)
			return r
		}
	}
	return nil
}

// planGroup is what to send of a group, nil when nothing of it is wanted any more.
func (s *Subscription) planGroup(group []string, to resource.Set, w Waits) *plan {
	p := &plan{}
	for _, name := range group {
		e, next := s.exceptions[name], to.Get(name)
		switch {
		case e == nil || e.standing != queued:
		case s.kind.Single && e.version != "" && (next == nil && s.states || next != nil &&
			next.Version() == e.version):
			e.standing = refused // it became again what the client refused, or nothing, which it cannot be told
		case next != nil && w.change(e.old, next):
			e.standing = lagging
		case next != nil:
			p.changed = append(p.changed, next)
		case e.old != nil && w.removal(name):
			e.standing = kept
		case s.kind.Empty != nil && s.names.Has(name):
			p.changed = append(p.changed, s.kind.Empty(name))
		default:
			p.removed = append(p.removed, name)
		}
	}
	if p.changes()+p.removals() == 0 {
		return nil
	}
	if s.states && !s.kind.Whole && p.changes() == 0 {
		for _, name := range p.removed {
			e := s.exceptions[name] // the set that the client otherwise has may hold it
			e.standing, e.old, e.oldKnown = unknown, nil, false
		}
		return nil
	}
	return p
}

// accept takes in that the client accepted a response.
func (s *Subscription) accept(f *flight, later []flight) {
	if !f.apart {
		return
	}
	// The group was made of the latest set then, which have need not be: where they differ, the
	// ordinary way decides again.
	settle := func(name string, r *resource.Resource) {
		e := s.exceptions[name]
		if e == nil || e.standing != queued || slices.ContainsFunc(later,
			func(l flight) bool { return l.holds(name) }) {
			return
		}
		had := s.had(name)
		switch {
		case had == nil && r == nil, had != nil && r != nil && same(had, r):
			s.clear(name)
		default:
			e.standing, e.old, e.oldKnown, e.unsure = unknown, r, true, false
		}
	}
	for _, r := range f.changed {
		settle(r.Name, r)
	}
	for _, name := range f.removed {
		settle(name, nil)
	}
}

// reject takes in that the client rejected a response; later are the responses sent after it.
func (s *Subscription) reject(f *flight, later []flight, words string, now time.Time) {
	var changed []*resource.Resource
	sent := 0
	for r := range eachOf(f) {
		sent++
		if s.mine(f, later, r.Name) {
			changed = append(changed, r)
		}
	}
	var removed []string
	for _, name := range f.allRemoved() {
		if s.mine(f, later, name) {
			removed = append(removed, name)
		}
	}
	if sent == 0 && !f.mixed { // nothing but removals: there is nothing to send again
		for _, name := range removed {
			s.clear(name)
		}
		return
	}
	if s.states && s.kind.Whole && (f.spoilt || s.uncertain(f, changed)) {
		s.taint(f, changed, words, now)
		for _, name := range removed {
			s.clear(name) // it is missing in every whole set from now on
		}
		return
	}
	for _, r := range changed {
		s.remember(f, r.Name, sent > 1)
	}
	for _, name := range removed {
		s.remember(f, name, true)
	}
	if sent > 1 || f.mixed {
		s.isolate(resourceNames(changed), removed, words)
		return
	}
	if len(changed) == 0 { // superseded: what was sent later decides
		s.isolate(nil, removed, words)
		return
	}
	e := s.except(changed[0].Name, refused)
	e.version, e.words, e.at = changed[0].Version(), words, now
	if len(removed) > 0 {
		s.isolate(nil, removed, "")
	}
}

// uncertain says whether nobody knows what the client had of some of these before the response.
func (s *Subscription) uncertain(f *flight, changed []*resource.Resource) bool {
	return slices.ContainsFunc(changed, func(r *resource.Resource) bool {
		_, known := f.before(r.Name, s.fresh)
		return !known
	})
}

// taint takes in that the client rejected a whole set that cannot be taken apart: what it had
// before would have to stand in the place of what is not being tried, and that is not known. Envoy
// applies what is right in such a set; what its words name counts as refused, but all is tried
// again at the next change.
func (s *Subscription) taint(f *flight, changed []*resource.Resource, words string, now time.Time) {
	for _, r := range changed {
		s.remember(f, r.Name, true)
		e := s.except(r.Name, tainted)
		if mentions(words, r.Name) {
			e.version, e.words, e.at = r.Version(), words, now
		}
	}
}

// mine says whether a rejected response decides about name: nothing about it was sent later, and it
// is still wanted. What was sent later inherits what the client had.
func (s *Subscription) mine(f *flight, later []flight, name string) bool {
	if !s.names.Covers(name) {
		return false
	}
	for i := range later {
		if later[i].holds(name) {
			old, known := f.before(name, s.fresh)
			later[i].keep(name, &exception{old: old, oldKnown: known, unsure: true})
			return false
		}
	}
	return true
}

// before is what the client had of name before the response, nil for nothing; known says whether
// that is certain.
func (f *flight) before(name string, fresh bool) (old *resource.Resource, known bool) {
	if e := f.olds[name]; e != nil {
		return e.old, e.oldKnown
	}
	if f.known.Covers(name) {
		return f.from.Get(name), true
	}
	return nil, fresh
}

// remember makes an exception of a name in a rejected response, with what the client had before it.
func (s *Subscription) remember(f *flight, name string, among bool) {
	e := s.exceptions[name]
	if e == nil {
		old, known := f.before(name, s.fresh)
		e = s.except(name, queued)
		e.old, e.oldKnown = old, known
		if was := f.olds[name]; was != nil {
			e.unsure = was.unsure
		}
	}
	e.standing = queued
	e.unsure = e.unsure || among
}

func resourceNames(rs []*resource.Resource) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.Name
	}
	return out
}
