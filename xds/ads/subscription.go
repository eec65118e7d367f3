package ads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Subscription is one resource type on one stream. Not safe for concurrent use.
//
// Invariant: once all pending responses are acknowledged, the client has what current says.
type Subscription struct {
	kind   *Kind  // immutable
	cache  *Cache // immutable
	sotw   bool   // immutable: the stream speaks state of the world
	prefix string // immutable: of this stream's nonces

	// To is what the client should have. Its owner keeps it up to date, and notes with Outdated that
	// it has to.
	To       resource.Set
	Outdated bool
	// Hold decides what waits; nil: nothing does. Order.Add sets it.
	Hold Hold

	rank    int                    // in the Order
	awaited func(name string) bool // whether the client waits for a name that it claims; nil: for none
	started bool                   // the client asked for this type
	resumed bool                   // it had resources of an earlier stream then
	names   *Names                 // what the client subscribes to

	// What the client has is the set have, as far as known covers it, except for the names in states.
	have resource.Set
	// accepted is have when the client last had all of it. It may be older than what the client has.
	accepted resource.Set
	known    *Names
	states   map[string]*nameState

	answer bool // the next response is due even if it is empty

	pending []*pending // responses without an answer, oldest first
	count   uint64     // responses sent

	acceptedAt time.Time // of the last acknowledgement
	rejections uint64
	rejection  *Rejection // the last one; nil after an acknowledgement of something newer
}

// NewSubscription returns a Subscription for a stream whose nonces begin with prefix. sotw means
// that the stream speaks state of the world.
func NewSubscription(kind *Kind, sotw bool, cache *Cache, prefix string) *Subscription {
	return &Subscription{kind: kind, sotw: sotw, cache: cache, prefix: prefix}
}

// Kind returns how its resources are delivered.
func (s *Subscription) Kind() *Kind { return s.kind }

// Names are what the client subscribes to.
func (s *Subscription) Names() *Names { return s.names }

// Receive takes in a request of this type. rejected means that it rejects a response of this stream
// that was not superseded. It returns an error if the client subscribes to too many names; the
// stream should end.
func (s *Subscription) Receive(r *Request, now time.Time) (rejected bool, err error) {
	if s.sotw {
		rejected = s.receiveState(r, now)
	} else {
		rejected = s.receiveDelta(r, now)
	}
	if n := len(s.names.List()); n > maxNames {
		err = fmt.Errorf("subscription to %s has %d resource names, at most %d are allowed",
			s.kind.TypeURL, n, maxNames)
	}
	return rejected, err
}

func (s *Subscription) receiveDelta(r *Request, now time.Time) (rejected bool) {
	subscribed := s.cache.names.ofRequest(r)
	if !s.started {
		if subscribed == nil && s.kind.Whole {
			subscribed = s.cache.names.everything()
		}
		s.start(subscribed)
		s.acceptClaims(r.Claims)
		return false
	}
	if number, ours := s.number(r.Nonce); ours {
		rejected = s.answered(number, r.Rejected, now)
	}
	if len(r.Unsubscribe) > 0 {
		s.unsubscribe(s.cache.names.of(r.Unsubscribe))
	}
	if subscribed != nil {
		s.subscribe(subscribed)
	}
	return rejected
}

// start begins with nothing known of the client.
func (s *Subscription) start(names *Names) {
	s.started, s.names, s.answer = true, names, names != nil
}

// subscribe adds names. The client gets them again if it has them.
func (s *Subscription) subscribe(names *Names) {
	for _, name := range names.List() {
		if st := s.states[name]; s.known.Covers(name) && (st == nil || st.is == rejected) {
			s.set(name, unknown)
		}
	}
	s.names = s.cache.names.union(s.names, names)
}

// unsubscribe drops names. The client forgets their resources.
func (s *Subscription) unsubscribe(names *Names) {
	same := s.names == s.known
	s.names = s.cache.names.minus(s.names, names)
	if same {
		s.known = s.names
	} else {
		s.known = s.cache.names.minus(s.known, names)
	}
	s.dropStates()
}

// resend makes the next response have names again although the client has them: Envoy waits for
// the endpoints of a changed cluster.
func (s *Subscription) resend(names []string) {
	if n := len(names); n > 32 && n > len(s.known.List())/4 {
		s.forget()
		return
	}
	for _, name := range names {
		switch st := s.states[name]; {
		case st != nil && st.is == deferred: // what waited may be taken back
			st.hadKnown = false
		case st == nil && s.known.Covers(name):
			s.set(name, unknown)
		}
	}
}

// forget makes everything be sent again, except for what was rejected or is deferred.
func (s *Subscription) forget() {
	for name, st := range s.states {
		switch {
		case st.is == unknown && !st.alone:
			s.clear(name)
		case st.is == deferred:
			st.hadKnown = false
		}
	}
	s.have, s.known = resource.Set{}, nil
}

// answered takes in the answer to a response, and reports whether it is rejected. An answer that
// comes too late is ignored.
func (s *Subscription) answered(number uint64, rejection *Rejection, now time.Time) (rejected bool) {
	i := slices.IndexFunc(s.pending, func(p *pending) bool { return p.number == number })
	if i < 0 {
		return false
	}
	p := s.pending[i]
	s.pending = s.pending[i+1:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	if rejection != nil {
		s.rejections++
		s.rejection = rejection
		s.reject(p, rejection.Message, now)
		return true
	}
	s.acceptedAt, s.rejection = now, nil
	if len(s.pending)+len(s.states) == 0 {
		s.accepted = s.have
	}
	return false
}

// has reports whether the client acknowledged the latest state of a name, or rejected it.
func (s *Subscription) has(name string) bool {
	st := s.states[name]
	return s.started && s.known.Covers(name) && (st == nil || st.is == rejected) && !s.inFlight(name)
}

// inFlight reports whether a name is in a pending response.
func (s *Subscription) inFlight(name string) bool {
	for _, p := range s.pending {
		if p.holds(name) {
			return true
		}
	}
	return false
}

// arriving reports whether a name is in a pending response, or is going to be sent again.
func (s *Subscription) arriving(name string) bool {
	st := s.states[name]
	return st != nil && st.is == unknown || s.inFlight(name)
}

// Settled reports whether the client acknowledged all that it should have, except for rejected
// versions and deferred removals. A type that the client never asked for is settled.
func (s *Subscription) Settled() bool {
	if !s.started {
		return true
	}
	if len(s.pending) > 0 || s.answer || s.have != s.To || s.known != s.names {
		return false
	}
	for name, st := range s.states {
		if st.is == unknown || st.alone || st.is == deferred && s.To.Get(name) != nil {
			return false
		}
	}
	return true
}

// nonce identifies the response of that number on this stream.
func (s *Subscription) nonce(number uint64) string { return s.prefix + strconv.FormatUint(number, 10) }

// number is the reverse of nonce. It returns false for a nonce that this stream did not send.
func (s *Subscription) number(nonce string) (number uint64, ours bool) {
	digits, ok := strings.CutPrefix(nonce, s.prefix)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 0 && number <= s.count && s.nonce(number) == nonce
}
