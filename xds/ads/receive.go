package ads

import (
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Outcome is what a request said about an earlier response.
type Outcome struct {
	// Acknowledged and Rejected say that the client accepted, or refused, a response of ours. Both
	// are false for subscriptions and for answers that come too late to matter.
	Acknowledged, Rejected bool
	// Started says that the client asked for this type for the first time, or anew.
	Started bool
	// Sent is when the response that it speaks of was sent.
	Sent time.Time
}

// Receive takes in a request of this type. to is what the client should have now; now is when the
// request came. Errors say what a client may not do; the stream should end with them.
func (s *Subscription) Receive(r *Request, to resource.Set, limits Limits, now time.Time) (Outcome, error) {
	var out Outcome
	if s.states {
		out = s.receiveState(r, to, now)
	} else {
		out = s.receiveDelta(r, to, now)
	}
	limits = limits.withDefaults()
	switch {
	case s.names == nil:
	case len(s.names.list) > limits.Names:
		return out, fmt.Errorf("subscription to %s holds %d resource names, at most %d are allowed", s.kind.TypeURL,
			len(s.names.list), limits.Names)
	case s.names.bytes > limits.Bytes:
		return out, fmt.Errorf("the names of the subscription to %s have %d bytes, at most %d are allowed",
			s.kind.TypeURL, s.names.bytes, limits.Bytes)
	}
	return out, nil
}

func (s *Subscription) receiveDelta(r *Request, to resource.Set, now time.Time) Outcome {
	number, ours := s.number(r.Nonce)
	subscribed := r.subscribed(&s.cache.names)
	if !s.started || s.anew(r, ours) {
		if subscribed == nil && s.kind.Wildcard {
			subscribed = s.cache.names.of(true, nobody)
		}
		s.start(subscribed)
		s.believe(r, to)
		s.recall()
		s.junk = r.Nonce != ""
		return Outcome{Started: true}
	}
	var out Outcome
	if ours {
		s.junk = false
		out = s.hear(number, r.Rejected, now)
	}
	if r.unsubscribes > 0 {
		names, all := r.named(r.unsubscribe)
		s.unsubscribe(s.cache.names.of(all, names))
	}
	if subscribed != nil {
		s.subscribe(subscribed)
		s.recall()
	}
	return out
}

// nobody yields no names.
func nobody(func([]byte) bool) {}

// anew says whether a request on a running subscription begins it again: one that claims what an
// earlier stream gave, or asks for everything once more, as a client does that shares a stream with
// the one before it. A client that never uses our nonces must not make us send for ever.
func (s *Subscription) anew(r *Request, ours bool) bool {
	if ours || r.Rejected != nil || s.junk && r.Nonce != "" {
		return false
	}
	if r.claimed > 0 {
		return true
	}
	return s.kind.Wildcard && r.subscribes+r.unsubscribes == 0
}

// start begins, or begins again, with nothing known of the client.
func (s *Subscription) start(names *Names) {
	s.started, s.fresh, s.answer = true, true, names != nil
	s.names, s.known, s.have = names, nil, resource.Set{}
	s.exceptions, s.queue = nil, nil
	s.flights, s.lost = nil, s.count
}

// subscribe adds names; those that the client has already are sent again.
func (s *Subscription) subscribe(names *Names) {
	for _, name := range names.List() {
		if s.known.Covers(name) {
			if e := s.exceptions[name]; e == nil || e.standing == refused {
				s.except(name, unknown)
			}
		}
	}
	s.names = s.cache.names.union(s.names, names)
}

// unsubscribe drops names. The client forgets what it has of them.
func (s *Subscription) unsubscribe(names *Names) {
	same := s.names == s.known
	s.names = s.cache.names.minus(s.names, names)
	if same {
		s.known = s.names
	} else {
		s.known = s.cache.names.minus(s.known, names)
	}
	s.uncover()
}

// uncover ends the exceptions of names that are not subscribed any more.
func (s *Subscription) uncover() {
	for name := range s.exceptions {
		if !s.names.Covers(name) {
			s.clear(name)
		}
	}
}

// believe takes in what the client says it has from an earlier stream, apart from what is in doubt.
func (s *Subscription) believe(r *Request, to resource.Set) {
	doubt := s.doubt
	s.doubt, s.recalled = Doubt{}, doubt.Refused
	s.resumed = r.claimed > 0
	if r.claimed == 0 && !doubt.All && len(doubt.Names) == 0 {
		return
	}
	s.fresh, s.answer = false, false
	c := newClaims(s.kind, s.names, to)
	for name, version := range r.versions() {
		c.take(string(name), string(version))
	}
	claimed := slices.Clone(c.stale)
	defer func() {
		for _, name := range claimed {
			if e := s.exceptions[name]; e != nil {
				e.claimed = true
			}
		}
	}()
	for _, name := range doubt.Names {
		c.doubt(name)
	}
	missing := c.missing(s.names, to)
	if doubt.All || len(missing) > 32 && len(missing) > c.wanted/8 {
		// most of it differs: begin with nothing, which other clients do too
		for _, name := range c.stale {
			s.except(name, unknown).oldKnown = false
		}
		return
	}
	s.have, s.known = to, s.names
	for _, name := range missing {
		e := s.except(name, unknown)
		e.old, e.oldKnown = nil, false
	}
	for _, name := range c.stale {
		s.except(name, unknown).oldKnown = false
	}
}

// receiveState adapts state of the world, where each request names all that is subscribed.
func (s *Subscription) receiveState(r *Request, to resource.Set, now time.Time) Outcome {
	number, ours := s.number(r.Nonce)
	names := r.subscribed(&s.cache.names)
	if names == nil && s.kind.Wildcard && (!s.started || !ours || s.legacy) {
		names = s.cache.names.of(true, nobody)
	}
	s.legacy = r.subscribes == 0 && names.All()
	if !s.started || !ours {
		if s.started && r.Nonce != "" && names == s.names && s.version != nil && r.Version == *s.version {
			return s.hear(s.count, r.Rejected, now) // it has what was sent last, whatever it calls that
		}
		if !s.started || r.Nonce != "" || names == s.names || s.heard || names.All() || s.names.All() {
			s.restart(r, names, to)
			s.recall()
			return Outcome{Started: true}
		}
		// It asked for more before our first response reached it.
	}
	// The names count even when the nonce is stale: what a client dropped and asked for again
	// meanwhile it has forgotten.
	var out Outcome
	if ours {
		s.heard = true
		out = s.hear(number, r.Rejected, now)
	}
	if names != s.names {
		same := s.known == s.names
		s.known = s.cache.names.common(s.known, names)
		s.names = names
		if same && s.known != names {
			s.answer = s.answer || s.kind.Whole
		}
		s.uncover()
		s.recall()
	}
	return out
}

// restart begins state of the world. The version that a client names on a new stream tells whether
// it has exactly what it should.
func (s *Subscription) restart(r *Request, names *Names, to resource.Set) {
	doubt := s.doubt
	s.doubt, s.recalled = Doubt{}, doubt.Refused
	s.start(names)
	s.fresh = r.Version == ""
	s.resumed = !s.fresh
	if s.fresh || !doubt.None() || !s.kind.Whole || !names.All() {
		return // what it dropped and asks for again does not show in the version
	}
	if v := s.cache.version(to, names); *v == r.Version {
		s.version, s.have, s.known, s.answer = v, to, names, false
	}
}

// hear takes in the answer to a response of ours; too late, it is ignored.
func (s *Subscription) hear(number uint64, rejected *Rejection, now time.Time) Outcome {
	i := 0
	for i < len(s.flights) && s.flights[i].number < number {
		i++
	}
	if i == len(s.flights) || s.flights[i].number != number {
		if rejected != nil && number <= s.lost && number > 0 && len(s.flights) > 0 {
			s.forget() // it may have applied any part of what is not tracked any more
		}
		return Outcome{}
	}
	for j := range i {
		s.accept(&s.flights[j], s.flights[j+1:])
	}
	f := s.flights[i]
	s.flights = s.flights[i+1:]
	if len(s.flights) == 0 {
		s.flights = nil
	}
	if rejected != nil {
		s.rejects++
		s.rejected = rejected
		s.reject(&f, s.flights, rejected.Message, now)
		return Outcome{Rejected: true, Sent: f.at}
	}
	s.accept(&f, s.flights)
	s.taken, s.takenAt, s.rejected = f.to, now, nil
	return Outcome{Acknowledged: true, Sent: f.at}
}
