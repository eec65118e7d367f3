package ads

import (
	"iter"
	"math"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Hold says how long a change has to wait: of a name to next, or its removal when next is nil.
// since is when it began to wait; zero: it does not wait yet. Zero means that it is sent.
type Hold func(name string, next *resource.Resource, since, now time.Time) time.Duration

// Forever is the answer of a Hold whose end no time brings.
const Forever time.Duration = math.MaxInt64

// change is what a response says: a shared difference, used whole, and what is this client's own.
// Either may be nil.
type change [2]*diff

// all yields every name with its resource, which is nil for a removal.
func (c *change) all() iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for _, d := range c {
			if d == nil {
				continue
			}
			for _, r := range d.changed {
				if !yield(r.Name, r) {
					return
				}
			}
			for _, name := range d.removed {
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// size counts the resources and removals.
func (c *change) size() (resources, removals int) {
	for _, d := range c {
		if d != nil {
			resources, removals = resources+len(d.changed), removals+len(d.removed)
		}
	}
	return resources, removals
}

// holds reports whether a name is in the change.
func (c *change) holds(name string) bool {
	for _, d := range c {
		if r, removed := d.find(name); r != nil || removed {
			return true
		}
	}
	return false
}

// own is the client's own part, to be completed.
func (c *change) own() *diff {
	if c[1] == nil {
		c[1] = &diff{}
	}
	return c[1]
}

// complete adds a shared difference without some names. Used whole it stays shared, its encoding
// included.
func (c *change) complete(shared *diff, without map[string]struct{}) {
	whole := true
	for name := range without {
		r, removed := shared.find(name)
		whole = whole && r == nil && !removed
	}
	switch {
	case shared.empty():
	case whole:
		c[0] = shared
	default:
		own := c.own()
		for _, r := range shared.changed {
			if _, ok := without[r.Name]; !ok {
				own.changed = append(own.changed, r)
			}
		}
		for _, name := range shared.removed {
			if _, ok := without[name]; !ok {
				own.removed = append(own.removed, name)
			}
		}
	}
	if c[1] != nil {
		c[1].sort()
	}
}

// plan is the next response and what becomes of the names that are not in it.
type plan struct {
	change
	now      time.Time
	deferred []string      // their change or removal waits
	settled  []string      // the client has them already
	wait     time.Duration // until the first deferred change has to be looked at again; zero: never
}

// holds asks whether a change waits, and notes it. A whole set of state of the world cannot leave
// out what waits if it is not known what the client has.
func (s *Subscription) holds(p *plan, name string, next *resource.Resource, since time.Time) bool {
	if s.Hold == nil {
		return false
	}
	if s.sotw && s.kind.Whole {
		if had, known := s.current(name); had == nil && !known {
			return false
		}
	}
	wait := s.Hold(name, next, since, p.now)
	if wait > 0 {
		p.deferred = append(p.deferred, name)
		p.wait = sooner(p.wait, wait)
	}
	return wait > 0
}

// sooner is the smaller of two waits, where zero means never.
func sooner(a, b time.Duration) time.Duration {
	switch {
	case b == 0, b == Forever:
		return a
	case a == 0:
		return b
	}
	return min(a, b)
}

// Next returns the next response, or nil if nothing is to be sent now. wait is how long until time
// alone changes that; zero: it does not.
func (s *Subscription) Next(now time.Time) (r *Response, wait time.Duration) {
	if !s.started || len(s.pending) >= max(s.kind.MaxPending, 1) {
		return nil, 0
	}
	if r = s.nextAlone(now); r != nil {
		return r, 0
	}
	if s.have == s.To && s.known == s.names && len(s.states) == 0 && !s.answer {
		return nil, 0
	}
	p := s.plan(now)
	if s.kind.Single {
		s.split(p)
	}
	first := s.count == 0 && len(p.deferred) > 0 // the first response is not empty because all waits
	if s.silent(p) && (!s.answer || first) {
		s.adopt(p, now)
		return s.nextAlone(now), p.wait
	}
	return s.send(p, now), 0
}

// silent reports whether a plan needs no response. State of the world cannot name what is removed,
// except by leaving it out of a whole set.
func (s *Subscription) silent(p *plan) bool {
	resources, removals := p.size()
	return resources == 0 && (removals == 0 || s.sotw && !s.kind.Whole)
}

// plan compares what the client has with what it should have. Names that differ from the shared
// sets are decided one by one.
func (s *Subscription) plan(now time.Time) *plan {
	p := &plan{now: now}
	shared := s.cache.diff(diffKey{s.have.Shared, s.To.Shared, s.known, s.names, s.kind})
	own := map[string]struct{}{} // names that are not taken from shared
	for name := range s.states {
		own[name] = struct{}{}
		s.decide(p, name)
	}
	if s.have.Own != s.To.Own || s.known != s.names || !shared.empty() {
		for name := range eitherName(s.have.Own.Items(), s.To.Own.Items()) {
			if _, ok := own[name]; !ok && s.names.Covers(name) {
				own[name] = struct{}{}
				s.decide(p, name)
			}
		}
	}
	if shared != nil && s.Hold != nil {
		held := func(name string, next *resource.Resource) {
			if _, ok := own[name]; !ok && s.holds(p, name, next, time.Time{}) {
				own[name] = struct{}{}
			}
		}
		for _, name := range shared.gone {
			held(name, nil)
		}
		for _, r := range shared.changed {
			held(r.Name, r)
		}
	}
	p.complete(shared, own)
	return p
}

// decide adds one name to a plan.
func (s *Subscription) decide(p *plan, name string) {
	st, next := s.states[name], s.To.Get(name)
	had, certain := s.current(name)
	if st == nil {
		if certain = s.known.Covers(name); !certain && next == nil && !s.names.Has(name) {
			return // never sent, and never asked for by name
		}
		st = &nameState{is: unknown}
	} else if st.is == unknown {
		certain = false
	}
	switch {
	case st.alone: // it is sent in a response of its own
	case st.rejection != nil && next != nil && next.Version() == st.rejection.Version:
		st.is = rejected // again
	case st.is == rejected && next == nil && s.sotw && !s.kind.Whole && s.kind.Empty == nil: // it cannot be removed
	case certain && (had == next || had != nil && next != nil && had.Version() == next.Version()):
		p.settled = append(p.settled, name)
	case (next != nil || had != nil || st.is != unknown) && s.holds(p, name, next, st.since):
	case next != nil:
		p.own().changed = append(p.own().changed, next)
	case s.kind.Empty != nil && s.names.Has(name):
		p.own().changed = append(p.own().changed, s.kind.Empty(name))
	default:
		p.own().removed = append(p.own().removed, name)
	}
}

// adopt makes To what the client has once it accepted p.
func (s *Subscription) adopt(p *plan, now time.Time) {
	for _, name := range p.deferred {
		s.wait(name, now)
	}
	if len(s.states) > 0 {
		for name := range p.all() {
			s.clear(name)
		}
		for _, name := range p.settled {
			s.clear(name)
		}
	}
	s.have, s.known = s.To, s.names
}

// wait defers a name, from now on or still.
func (s *Subscription) wait(name string, now time.Time) {
	st := s.states[name]
	if st == nil {
		st = s.set(name, deferred)
	} else if st.is == unknown {
		st.hadKnown = false
	}
	st.is, st.rejection = deferred, nil
	if st.since.IsZero() {
		st.since = now
	}
}

// split takes the resources out of a plan: each is sent in a response of its own.
func (s *Subscription) split(p *plan) {
	removals := &diff{}
	for name, r := range p.all() {
		if r == nil {
			removals.removed = append(removals.removed, name)
			continue
		}
		is := deferred
		if st := s.states[name]; st != nil {
			is = st.is
		}
		s.set(name, is).alone = true
		s.answer = false
	}
	p.change = change{nil, removals}
}

// nextAlone returns the next response of one resource; nil: there is none.
func (s *Subscription) nextAlone(now time.Time) *Response {
	for {
		name, st := s.firstAlone()
		if st == nil {
			return nil
		}
		st.alone = false
		p := &plan{now: now}
		s.decide(p, name)
		switch {
		case len(p.deferred) > 0:
			s.wait(name, now)
		case p.holds(name):
			return s.sendAlone(p, name)
		}
	}
}

// firstAlone returns the first name that is to be sent alone; nil: none now. The client checks one
// version of a secret at a time.
func (s *Subscription) firstAlone() (name string, state *nameState) {
	for n, st := range s.states {
		if st.alone && (state == nil || n < name) && !(s.kind.Single && s.inFlight(n)) {
			name, state = n, st
		}
	}
	return name, state
}
