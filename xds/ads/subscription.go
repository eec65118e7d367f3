package ads

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Subscription is one resource type on one stream: what the client asked for, what it has, and what
// is on its way. Not safe for concurrent use.
//
// Law: outside exceptions, a client that accepted everything in flight has the set have, as far as
// known covers it.
type Subscription struct {
	kind   *Kind  // set once
	cache  *Cache // set once
	states bool   // set once: state of the world
	prefix string // set once: of this stream's nonces

	started  bool      // the client asked for this type
	fresh    bool      // the client had nothing when it started
	resumed  bool      // the client named something that it had from an earlier stream
	heard    bool      // state of the world: it named a nonce of ours since
	legacy   bool      // state of the world: it asked for everything by naming nothing
	junk     bool      // it started anew with a nonce that was never ours, and used none of ours since
	names    *Names    // what the client wants
	doubt    Doubt     // before the start: what not to believe
	recalled []Refusal // of an earlier stream, of what the client did not ask for yet

	have       resource.Set
	known      *Names
	answer     bool // the next response is due even when it is empty
	exceptions map[string]*exception
	queue      [][]string // groups of queued names, each to be sent apart
	flights    []flight   // oldest first; at most one, unless kind.Supersede
	count      uint64     // responses sent
	lost       uint64     // responses up to this one are not tracked any more

	version  *string // state of the world: the content last sent
	taken    resource.Set
	takenAt  time.Time
	rejects  uint64
	rejected *Rejection // the last one, nil after an acknowledgement of something newer
}

// NewSubscription makes one for a stream whose nonces begin with prefix. states says whether the
// stream speaks state of the world.
func NewSubscription(kind *Kind, states bool, cache *Cache, prefix string) *Subscription {
	return &Subscription{kind: kind, states: states, cache: cache, prefix: prefix}
}

// Kind returns how its resources are delivered.
func (s *Subscription) Kind() *Kind { return s.kind }

// Started says whether the client asked for this type.
func (s *Subscription) Started() bool { return s.started }

// Names are what the client wants.
func (s *Subscription) Names() *Names { return s.names }

// Has says whether the client acknowledged the latest state of a name: it is subscribed, nothing of
// it is on its way and nothing about it is unknown.
func (s *Subscription) Has(name string) bool {
	if !s.started || !s.known.Covers(name) {
		return false
	}
	if e := s.exceptions[name]; e != nil && e.standing != refused {
		return false
	}
	return !s.Flying(name)
}

// Flying says whether name is in a response that is not acknowledged yet.
func (s *Subscription) Flying(name string) bool {
	for i := range s.flights {
		if s.flights[i].holds(name) {
			return true
		}
	}
	return false
}

// Arriving says whether name is on its way, or queued to be sent apart, to a client that did not
// have it before.
func (s *Subscription) Arriving(name string) bool {
	if e := s.exceptions[name]; e != nil && e.standing == queued && e.old == nil {
		return true
	}
	for i := range s.flights {
		if f := &s.flights[i]; f.holds(name) {
			if old, _ := f.before(name, s.fresh); old == nil {
				return true
			}
		}
	}
	return false
}

// Fresh says whether the client had nothing when it asked for this type first.
func (s *Subscription) Fresh() bool { return s.fresh }

// Resumed says whether the client came with something of an earlier stream when it asked for this
// type.
func (s *Subscription) Resumed() bool { return s.resumed }

// InFlight is how many responses are not acknowledged yet.
func (s *Subscription) InFlight() int { return len(s.flights) }

// Settled says whether the client acknowledged all that there is to have of to, refused versions
// and removals that wait aside. A type that the client never asked for is settled.
func (s *Subscription) Settled(to resource.Set) bool {
	if !s.started {
		return true
	}
	if len(s.flights) > 0 || len(s.queue) > 0 || s.answer || s.have != to || s.known != s.names {
		return false
	}
	for _, e := range s.exceptions {
		if e.standing == unknown || e.standing == queued || e.standing == lagging {
			return false
		}
	}
	return true
}

// Pending yields the resources that Next would send if nothing had to wait, each after what the
// client has of it: nil for nothing, or when nobody knows.
func (s *Subscription) Pending(to resource.Set, yield func(had, next *resource.Resource) bool) {
	if !s.started || s.have == to && s.known == s.names && len(s.exceptions) == 0 {
		return
	}
	p := s.plan(to, Waits{})
	for r := range p.sent() {
		had := s.had(r.Name)
		if e := s.exceptions[r.Name]; e != nil {
			had = e.old
		}
		if !yield(had, r) {
			return
		}
	}
}

// Next returns the response that leads the client towards to, or nil when there is nothing to say
// or an acknowledgement has to come first. w says what has to wait.
func (s *Subscription) Next(to resource.Set, w Waits, now time.Time) *Response {
	if !s.started || len(s.flights) >= s.kind.mostFlights() {
		return nil
	}
	if r := s.alone(to, w, now); r != nil {
		return r
	}
	if s.have == to && s.known == s.names && len(s.exceptions) == 0 && !s.answer || s.busy() {
		return nil
	}
	p := s.plan(to, w)
	if s.kind.Single && p.changes() > 0 {
		s.separate(p)
		if p = s.plan(to, w); s.silent(p) {
			s.adopt(to, p)
			return s.alone(to, w, now)
		}
	}
	if s.silent(p) && !s.answer {
		if s.taken == s.have {
			s.taken = to // equal for this client, and the older one need not be kept
		}
		s.adopt(to, p)
		return nil
	}
	return s.send(to, p, now)
}

// busy says whether a whole set is being taken apart: another one would overrule what is being
// tried.
func (s *Subscription) busy() bool {
	return s.states && s.kind.Whole && (len(s.queue) > 0 ||
		slices.ContainsFunc(s.flights, func(f flight) bool { return f.apart }))
}

// silent says whether a plan needs no response. State of the world cannot name what is removed,
// except by leaving it out of a whole set.
func (s *Subscription) silent(p *plan) bool {
	if s.states && !s.kind.Whole {
		return p.changes() == 0
	}
	return p.changes()+p.removals() == 0
}

// adopt makes to what the client has once it accepted p.
func (s *Subscription) adopt(to resource.Set, p *plan) {
	for _, name := range p.kept {
		s.except(name, kept)
	}
	for _, name := range p.lagging {
		s.except(name, lagging)
	}
	for name := range p.all() {
		if len(s.exceptions) == 0 {
			break
		}
		s.clear(name)
	}
	for _, name := range p.settled {
		s.clear(name)
	}
	s.have, s.known = to, s.names
}

// maxFlights bounds what is remembered of responses that are not acknowledged.
const maxFlights = 32

// send makes the response of a plan and takes off.
func (s *Subscription) send(to resource.Set, p *plan, now time.Time) *Response {
	f := flight{shared: p.shared, changed: p.changed, removed: p.removed, from: s.have, known: s.known, to: to, at: now}
	for _, name := range s.exceptional() {
		if e := s.exceptions[name]; e.standing != queued && f.holds(name) {
			f.keep(name, e)
		}
	}
	s.adopt(to, p)
	s.answer = false
	r := s.respond(to, p, nil)
	f.spoilt = r.spoilt
	s.launch(f)
	return r
}

// launch counts a response and remembers it until it is acknowledged.
func (s *Subscription) launch(f flight) {
	f.number = s.count
	f.mixed = s.states && s.kind.Whole && len(s.flights) > 0
	if len(s.flights) == maxFlights {
		s.lost = s.flights[0].number
		s.flights = append(s.flights[:0], s.flights[1:]...)
	}
	s.flights = append(s.flights, f)
}

// nonce is the name of the response of that number on this stream.
func (s *Subscription) nonce(number uint64) string { return s.prefix + strconv.FormatUint(number, 10) }

// number is the reverse of nonce; ours is false for what this stream never sent.
func (s *Subscription) number(nonce string) (number uint64, ours bool) {
	digits, ok := strings.CutPrefix(nonce, s.prefix)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 0 && number <= s.count && s.nonce(number) == nonce
}
