package ads

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Order decides what a stream sends next. Its rules are what Envoy needs:
//
//   - A listener, route or extension that names a new or changed cluster waits until the cluster's
//     endpoints are acknowledged, at most RouteWait. (Routes sent 300 ms before the endpoints cost
//     requests.) An extension waits also for another one that it leaves requests to.
//   - An extension that permits more than before waits until those that refuse more are
//     acknowledged. So no request passes between a rule that is gone and one that has not arrived.
//   - A removed cluster or route stays for RemovalWait, so that what uses it moves on first, and what
//     an extension asked of a cluster is answered. It stays as long as the client keeps an older
//     listener, route or extension, which may use it. Endpoints of a removed cluster stay until the
//     client drops them.
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

	subs []*Subscription // by rank
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

// All are the subscriptions by rank, not to be changed.
func (o *Order) All() []*Subscription { return o.subs }

// Add adds a subscription. Those of lower rank are sent first.
func (o *Order) Add(s *Subscription, rank int) {
	s.rank, s.Hold = rank, o.hold(s)
	if s.kind.TypeURL == resource.EndpointType {
		s.awaited = o.awaitsEndpoints
	}
	at, _ := slices.BinarySearchFunc(o.subs, rank+1, func(s *Subscription, rank int) int { return s.rank - rank })
	o.subs = slices.Insert(o.subs, at, s)
}

// awaitsEndpoints reports whether an Envoy that begins a stream waits for the endpoints of a cluster
// although it has them: the cluster was just sent, or was changed at the end of the former stream.
// While a cluster waits Envoy does not ask for clusters, so it asks for endpoints before them.
// Source: Envoy, ClusterManagerImpl::updateClusterCounts.
func (o *Order) awaitsEndpoints(cluster string) bool {
	cds := o.Find(resource.ClusterType)
	return cds == nil || cds.inFlight(cluster)
}

// Settled reports whether the client acknowledged everything.
func (o *Order) Settled() bool {
	return !slices.ContainsFunc(o.subs, func(s *Subscription) bool { return !s.Settled() })
}

// Next returns the next response, or nil. wait is how long until time alone changes that; zero: it
// does not.
func (o *Order) Next(now time.Time) (r *Response, wait time.Duration) {
	for range 2 { // a type that needs no response may let a removal of an earlier one go
		waits := false
		wait = 0
		for _, s := range o.subs {
			r, left := s.Next(now)
			if r != nil {
				o.sent(s, r)
				return r, 0
			}
			wait = sooner(wait, left)
			waits = waits || len(s.states) > 0
		}
		if !waits {
			break
		}
	}
	return nil, wait
}

// sent has the endpoints of changed clusters sent again, which have the names of their clusters. If
// the client asks for endpoints later, acceptClaims does.
func (o *Order) sent(s *Subscription, r *Response) {
	eds := o.Find(resource.EndpointType)
	if s.kind.TypeURL != resource.ClusterType || eds == nil {
		return
	}
	var changed []string
	for name, c := range r.change.all() {
		if c != nil {
			changed = append(changed, name)
		}
	}
	eds.resend(changed)
}

// hold returns how long changes of a type wait.
func (o *Order) hold(s *Subscription) Hold {
	return func(name string, next *resource.Resource, since, now time.Time) time.Duration {
		if next == nil {
			return o.holdRemoval(s, name, since, now)
		}
		return o.holdChange(s, name, next, since, now)
	}
}

// holdRemoval is how long the removal of a resource waits.
func (o *Order) holdRemoval(s *Subscription, name string, since, now time.Time) time.Duration {
	switch s.kind.TypeURL {
	case resource.ClusterType:
		if o.keepsOlder(resource.ListenerType) || o.keepsOlder(resource.RouteType) ||
			o.keepsOlder(resource.ExtensionConfigType) {
			return Forever
		}
		return left(since, now, o.RemovalWait)
	case resource.RouteType:
		if o.keepsOlder(resource.ListenerType) {
			return Forever
		}
		return left(since, now, o.RemovalWait)
	case resource.EndpointType:
		if cds := o.Find(resource.ClusterType); cds != nil && cds.To.Get(name) == nil {
			return Forever
		}
	case resource.ExtensionConfigType:
		if had, _ := s.current(name); permitsMore(had, nil) && refusesMore(s) {
			return Forever
		}
	}
	return 0
}

// holdChange is how long the next version of a resource waits: for new or changed clusters, and of an
// extension also for others that it leaves requests to, or that refuse more.
func (o *Order) holdChange(s *Subscription, name string, next *resource.Resource, since, now time.Time) time.Duration {
	waits := false
	switch s.kind.TypeURL {
	case resource.ListenerType, resource.RouteType:
		waits = o.namesSentCluster(next)
	case resource.ExtensionConfigType:
		if had, _ := s.current(name); permitsMore(had, next) && refusesMore(s) {
			return Forever
		}
		waits = o.namesSentCluster(next)
		for other := range refs(next, resource.ExtensionConfigType) {
			waits = waits || o.namesSentCluster(s.To.Get(other))
		}
	}
	if !waits {
		return 0
	}
	return left(since, now, o.RouteWait)
}

// permitsMore reports whether next lacks one of the guards of had. Both may be nil.
func permitsMore(had, next *resource.Resource) bool {
	return had != nil && slices.ContainsFunc(had.Guards, func(g string) bool {
		return next == nil || !slices.Contains(next.Guards, g)
	})
}

// refusesMore reports whether the client still has to get an extension that refuses more than
// before: none is sent while another one is pending. One that it rejected counts, because what it
// would have refused stays refused otherwise.
func refusesMore(s *Subscription) bool {
	for next := range s.To.All() {
		if !s.names.Covers(next.Name) || len(next.Guards) == 0 {
			continue
		}
		had, _ := s.current(next.Name)
		changed := had == nil || had != next && had.Version() != next.Version()
		if changed && !permitsMore(had, next) {
			return true
		}
	}
	return false
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

// namesSentCluster reports whether a resource, which may be nil, names a cluster that was just sent, and
// whose endpoints the client has not acknowledged.
func (o *Order) namesSentCluster(r *resource.Resource) bool {
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

// keepsOlder reports whether the client keeps an older resource of a type, because it rejected the
// newer version or that is deferred.
func (o *Order) keepsOlder(typeURL string) bool {
	s := o.Find(typeURL)
	if s == nil {
		return false
	}
	for _, st := range s.states {
		if st.is != unknown {
			return true
		}
	}
	return false
}
