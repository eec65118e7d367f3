package ads

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Order decides what a stream sends next. Its rules are what Envoy needs:
//
//   - A listener, route or extension that names a new cluster waits until the cluster's endpoints are
//     acknowledged, at most RouteWait. (Routes sent 300 ms before the endpoints cost requests.) An
//     extension waits also for another one that it leaves requests to.
//   - An extension that permits more than before waits until those that refuse more are
//     acknowledged. So no request passes between a rule that is gone and one that has not arrived.
//   - A removed cluster or route stays for RemovalWait, so that what uses it moves on first, and what
//     an extension asked of a cluster is answered. It stays as long as the client keeps an older
//     listener, route or extension that uses it. Endpoints of a removed cluster stay until the client
//     drops them.
//   - A changed cluster warms again: its endpoints are sent again.
//   - Nothing else waits. Endpoints and secrets never wait for clusters, whose acknowledgement Envoy
//     withholds until it has them.
//
// Not safe for concurrent use.
type Order struct {
	// RouteWait is how long a resource waits for the clusters that it names.
	RouteWait time.Duration
	// RemovalWait is how long a removed cluster or route stays.
	RemovalWait time.Duration

	subs    []*Subscription     // by rank
	warming map[string]struct{} // changed clusters, until the client asks for endpoints
}

// Find returns the subscription to a type, nil if the client never asked for it.
func (o *Order) Find(typeURL string) *Subscription {
	for _, s := range o.subs {
		if s.kind.TypeURL == typeURL {
			return s
		}
	}
	return nil
}

// Add adds a subscription. Those of lower rank are sent first. at is its index among all.
func (o *Order) Add(s *Subscription, rank int) (at int) {
	s.rank = rank
	if s.kind.TypeURL == resource.EndpointType {
		s.suspects, o.warming = o.warming, nil
	}
	at, _ = slices.BinarySearchFunc(o.subs, rank+1, func(s *Subscription, rank int) int { return s.rank - rank })
	o.subs = slices.Insert(o.subs, at, s)
	return at
}

// Settled reports whether the client acknowledged everything.
func (o *Order) Settled() bool {
	return !slices.ContainsFunc(o.subs, func(s *Subscription) bool { return !s.Settled() })
}

// Next returns the next response, or nil. wait is how long until time alone changes that; zero: it
// does not.
func (o *Order) Next(now time.Time) (r *Response, wait time.Duration) {
	for range 2 { // a type that needs no response may let a removal of an earlier one go
		wait = 0
		for _, s := range o.subs {
			r, left := s.Next(o.hold(s, now), now)
			if r != nil {
				o.sent(s, r)
				return r, 0
			}
			wait = sooner(wait, left)
		}
	}
	return nil, wait
}

// sent has the endpoints of changed clusters sent again, which have the names of their clusters.
func (o *Order) sent(s *Subscription, r *Response) {
	if s.kind.TypeURL != resource.ClusterType {
		return
	}
	eds := o.Find(resource.EndpointType)
	var changed []string
	for c := range r.Changed() {
		changed = append(changed, c.Name)
	}
	switch {
	case eds != nil:
		eds.resend(changed)
	case s.resumed:
		if o.warming == nil {
			o.warming = map[string]struct{}{}
		}
		for _, name := range changed {
			o.warming[name] = struct{}{}
		}
	}
}

// hold returns what has to wait of a type; nil: nothing.
func (o *Order) hold(s *Subscription, now time.Time) Hold {
	switch s.kind.TypeURL {
	case resource.ClusterType:
		return func(name string, next *resource.Resource, since time.Time) time.Duration {
			if next != nil {
				return 0
			}
			return o.holdRemoval(resource.Ref{TypeURL: resource.ClusterType, Name: name}, since, now)
		}
	case resource.EndpointType:
		return func(name string, next *resource.Resource, _ time.Time) time.Duration {
			if cds := o.Find(resource.ClusterType); next != nil || cds == nil || cds.To.Get(name) != nil {
				return 0
			}
			return Forever
		}
	case resource.ListenerType:
		return func(_ string, next *resource.Resource, since time.Time) time.Duration {
			return o.holdUser(next, since, now)
		}
	case resource.RouteType:
		return func(name string, next *resource.Resource, since time.Time) time.Duration {
			if next != nil {
				return o.holdUser(next, since, now)
			}
			return o.holdRemoval(resource.Ref{TypeURL: resource.RouteType, Name: name}, since, now)
		}
	case resource.ExtensionConfigType:
		return func(name string, next *resource.Resource, since time.Time) time.Duration {
			if had, _ := s.current(name); permitsMore(had, next) && refusesMore(s) {
				return Forever
			}
			wait := o.holdUser(next, since, now)
			for name := range refs(next, resource.ExtensionConfigType) {
				wait = max(wait, o.holdUser(s.To.Get(name), since, now))
			}
			return wait
		}
	}
	return nil
}

// permitsMore reports whether next lacks one of the guards of had. Both may be nil.
func permitsMore(had, next *resource.Resource) bool {
	return had != nil && slices.ContainsFunc(had.Guards, func(g string) bool {
		return next == nil || !slices.Contains(next.Guards, g)
	})
}

// refusesMore reports whether the client still has to acknowledge an extension that refuses more
// than before. One that it rejected counts: what it would have refused stays refused otherwise.
func refusesMore(s *Subscription) bool {
	for next := range s.To.All() {
		if !s.names.Covers(next.Name) || len(next.Guards) == 0 {
			continue
		}
		had, _ := s.current(next.Name)
		if (had != next || s.inFlight(next.Name)) && !permitsMore(had, next) && (had == nil || had.Version() != next.Version()) {
			return true
		}
	}
	return false
}

// holdUser is how long a resource, which may be nil, waits for new clusters that it names.
func (o *Order) holdUser(r *resource.Resource, since, now time.Time) time.Duration {
	if !o.namesNewCluster(r) {
		return 0
	}
	return left(since, now, o.RouteWait)
}

// holdRemoval is how long a removal waits.
func (o *Order) holdRemoval(ref resource.Ref, since, now time.Time) time.Duration {
	if o.inUse(ref) {
		return Forever
	}
	return left(since, now, o.RemovalWait)
}

// left is how long a wait still lasts that began at since; zero: it begins now.
func left(since, now time.Time, bound time.Duration) time.Duration {
	if since.IsZero() {
		return bound
	}
	return max(0, since.Add(bound).Sub(now))
}

// refs yields the names of one type that a resource, which may be nil, refers to.
func refs(r *resource.Resource, typeURL string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if r == nil {
			return
		}
		for _, ref := range r.Refs {
			if ref.TypeURL == typeURL && !yield(ref.Name) {
				return
			}
		}
	}
}

// namesNewCluster reports whether a resource, which may be nil, names a cluster that the client did not have before,
// and whose endpoints it has not acknowledged.
func (o *Order) namesNewCluster(r *resource.Resource) bool {
	cds, eds := o.Find(resource.ClusterType), o.Find(resource.EndpointType)
	if cds == nil || len(cds.pending) == 0 {
		return false
	}
	for name := range refs(r, resource.ClusterType) {
		if cds.arriving(name) && (eds == nil || !eds.has(name)) {
			return true
		}
	}
	return false
}

// inUse reports whether the client keeps an older resource that uses ref, because it rejected the
// newer version or that is deferred.
func (o *Order) inUse(ref resource.Ref) bool {
	for _, typeURL := range []string{resource.ListenerType, resource.RouteType, resource.ExtensionConfigType} {
		s := o.Find(typeURL)
		if s == nil {
			continue
		}
		for _, st := range s.states {
			uncertain := st.is == rejected && st.had == nil && !st.hadKnown && s.resumed
			if uncertain || st.is != unknown && st.had != nil && slices.Contains(st.had.Refs, ref) {
				return true
			}
		}
	}
	return false
}
