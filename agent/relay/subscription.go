package relay

import (
	"maps"
	"slices"
)

// subscription is one type on one stream of Envoy. It does no I/O.
type subscription struct {
	typeURL string // immutable

	all   bool                // everything is subscribed
	names map[string]struct{} // subscribed by name

	// has are the names that Envoy claimed or was sent, and those of which it knows that there is
	// no resource.
	has     map[string]struct{}
	pending []*response // sent and not acknowledged, oldest first

	// newEnvoy says that Envoy is new, and acknowledged nothing yet. Its first response is complete, so
	// the cache drops what an earlier Envoy had.
	newEnvoy bool
}

func newSubscription(typeURL string) *subscription {
	return &subscription{typeURL: typeURL, names: map[string]struct{}{}, has: map[string]struct{}{}}
}

// wants reports whether Envoy subscribes to name.
func (s *subscription) wants(name string) bool { return s.all || contains(s.names, name) }

// lacks reports whether Envoy subscribes to name and was not sent it.
func (s *subscription) lacks(name string) bool { return s.wants(name) && !contains(s.has, name) }

func contains(names map[string]struct{}, name string) bool {
	_, ok := names[name]
	return ok
}

// subscribe applies the names of a request. first says that it is the first request of the type.
func (s *subscription) subscribe(r *request, first bool) {
	for _, name := range r.ResourceNamesSubscribe {
		if name != "*" {
			s.names[name] = struct{}{}
			delete(s.has, name) // a new subscription is answered again
		}
	}
	for _, name := range r.ResourceNamesUnsubscribe {
		delete(s.names, name)
	}
	if first {
		for name := range r.InitialResourceVersions {
			s.has[name] = struct{}{}
		}
		s.all = len(s.names) == 0
	}
	s.all = (s.all || slices.Contains(r.ResourceNamesSubscribe, "*")) &&
		!slices.Contains(r.ResourceNamesUnsubscribe, "*")
	maps.DeleteFunc(s.has, func(name string, _ struct{}) bool { return !s.wants(name) })
}

// send records that a response is sent to Envoy.
func (s *subscription) send(r *response) {
	s.pending = append(s.pending, r)
	for _, it := range r.Resources {
		s.has[it.Name] = struct{}{}
	}
	for _, name := range r.RemovedResources {
		if delete(s.has, name); contains(s.names, name) {
			s.has[name] = struct{}{}
		}
	}
}

// answer returns the response with a nonce, which Envoy has answered; nil if there is none.
func (s *subscription) answer(nonce string) *response {
	i := slices.IndexFunc(s.pending, func(r *response) bool { return r.Nonce == nonce })
	if i < 0 {
		return nil
	}
	r := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	return r
}
