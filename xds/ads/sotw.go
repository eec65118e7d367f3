package ads

import (
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// receiveState takes in a request of state of the world, which names all that is subscribed.
func (s *Subscription) receiveState(r *Request, now time.Time) (rejected bool) {
	names := s.cache.names.ofRequest(r)
	if names == nil && s.kind.Whole && (!s.started || s.names.All()) {
		names = s.cache.names.everything()
	}
	if !s.started {
		s.start(names)
		s.resumed = r.Version != ""
		return false
	}
	number, ours := s.number(r.Nonce)
	if !ours && r.Nonce != "" && s.count > 0 && (r.Rejected != nil || r.Version == s.nonce(s.count)) {
		// Istio's client sends nonces of its own (pkg/adsc): it means the last response.
		number, ours = s.count, true
	}
	if ours {
		rejected = s.answered(number, r.Rejected, now)
	}
	// The names count even if the nonce is stale: what a client dropped and asked for again
	// meanwhile, it has forgotten.
	if names != s.names {
		s.unsubscribe(s.cache.names.minus(s.names, names))
		s.names = names
		s.answer = s.answer || s.kind.Whole
	}
	return rejected
}

// encodeWhole adds everything to r that the client should have now, because what is missing is
// removed. A name that is deferred is in it as the client has it.
func (s *Subscription) encodeWhole(r *Response) {
	var c change
	without := map[string]struct{}{}
	for name, st := range s.states {
		without[name] = struct{}{}
		if stands := s.stands(name, st); stands != nil {
			c.own().changed = append(c.own().changed, stands)
		}
	}
	for _, o := range s.To.Own.Items() {
		if _, ok := without[o.Name]; !ok && s.names.Covers(o.Name) {
			without[o.Name] = struct{}{}
			c.own().changed = append(c.own().changed, o)
		}
	}
	c.complete(s.cache.diff(diffKey{nil, s.To.Shared, nil, s.names, s.kind}), without)
	s.encodeChange(r, &c)
}

// stands is the resource that a whole set has for a name with a state; nil: none.
func (s *Subscription) stands(name string, st *nameState) *resource.Resource {
	if st.is == deferred && st.hadKnown {
		return st.had
	}
	return s.To.Get(name) // without it the client might lose what it has
}
