package relay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// unknownVersion is claimed for a resource that Envoy may have or not. No control plane uses it as
// a version.
const unknownVersion = "unacknowledged"

// subscription is one type on one stream of Envoy. It does no I/O.
type subscription struct {
	typeURL string // immutable

	all   bool                // everything is subscribed
	names map[string]struct{} // subscribed by name

	// claims are the versions of what Envoy may have, by name: the version that it acknowledged
	// last, unknownVersion if it has not acknowledged the latest response, or "" if it knows that
	// there is none.
	claims  map[string]string
	pending []*response       // sent and not acknowledged, oldest first
	refused map[string]string // by name: Envoy's message about the version that it rejected last

	// live says that the current stream to the control plane subscribes to the type. If not, the
	// cache answers.
	live bool
}

// response is a response that was sent to Envoy.
type response struct {
	*ads.Reply
	from *upstream // nil: the cache
}

func newSubscription(typeURL string) *subscription {
	return &subscription{typeURL: typeURL, names: map[string]struct{}{},
		claims: map[string]string{}, refused: map[string]string{}}
}

// wants reports whether Envoy subscribes to name.
func (s *subscription) wants(name string) bool {
	_, named := s.names[name]
	return named || s.all
}

// lacks reports whether Envoy subscribes to name and was not sent it.
func (s *subscription) lacks(name string) bool {
	_, claimed := s.claims[name]
	return !claimed && s.wants(name)
}

// subscribe applies the names of a request. first says that it is the first request of the type.
func (s *subscription) subscribe(r *ads.Request, first bool) {
	everything, nothing := slices.Contains(r.Subscribe, "*"), slices.Contains(r.Unsubscribe, "*")
	for _, name := range r.Subscribe {
		if name != "*" {
			s.names[name] = struct{}{}
			delete(s.claims, name) // a new subscription is answered again
		}
	}
	if first {
		s.all = everything || len(s.names) == 0
		maps.Copy(s.claims, r.Claims)
		return
	}
	s.all = (s.all || everything) && !nothing
	for _, name := range r.Unsubscribe {
		delete(s.names, name)
	}
	if r.Renames() {
		maps.DeleteFunc(s.claims, func(name, _ string) bool { return !s.wants(name) })
		maps.DeleteFunc(s.refused, func(name, _ string) bool { return !s.wants(name) })
	}
}

// send records that a response is sent to Envoy.
func (s *subscription) send(r *response) {
	s.pending = append(s.pending, r)
	for name := range r.names() {
		if s.wants(name) {
			s.claims[name] = unknownVersion
		}
	}
}

// names yields the names in a response.
func (r *response) names() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range r.Items {
			if !yield(r.Items[i].Name) {
				return
			}
		}
		for _, name := range r.Removed {
			if !yield(name) {
				return
			}
		}
	}
}

// answer handles Envoy's answer to the response with a nonce. It returns the response; nil if there
// is none.
func (s *subscription) answer(nonce string, rejected *ads.Rejection) *response {
	i := slices.IndexFunc(s.pending, func(r *response) bool { return r.Nonce == nonce })
	if i < 0 {
		return nil
	}
	r := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	later := map[string]struct{}{} // names in later responses
	for _, p := range s.pending {
		for name := range p.names() {
			later[name] = struct{}{}
		}
	}
	if rejected != nil {
		for name := range r.names() {
			s.refused[name] = cmp.Or(rejected.Message, "Envoy gave no reason")
		}
		return r
	}
	for name := range r.names() {
		delete(s.refused, name)
	}
	for i := range r.Items {
		if it := &r.Items[i]; s.wants(it.Name) && !has(later, it.Name) {
			s.claims[it.Name] = it.Version
		}
	}
	for _, name := range r.Removed {
		switch {
		case has(later, name):
		case has(s.names, name):
			s.claims[name] = ""
		default:
			delete(s.claims, name)
		}
	}
	return r
}

func has(names map[string]struct{}, name string) bool {
	_, ok := names[name]
	return ok
}

// ask returns the first request for the type on a new stream; nil if nothing is subscribed.
// clusters is the subscription to clusters; nil if there is none.
func (s *subscription) ask(clusters *subscription) *ads.Ask {
	if !s.all && len(s.names) == 0 {
		return nil
	}
	a := &ads.Ask{TypeURL: s.typeURL, Subscribe: slices.Sorted(maps.Keys(s.names)), Claims: s.claims}
	if s.all {
		a.Subscribe = append([]string{"*"}, a.Subscribe...)
	}
	if s.typeURL == resource.EndpointType && clusters != nil {
		// A cluster that is not acknowledged is sent again, and Envoy waits for its endpoints.
		a.Claims = maps.Clone(s.claims)
		maps.DeleteFunc(a.Claims, func(name, _ string) bool { return clusters.claims[name] == unknownVersion })
	}
	return a
}
