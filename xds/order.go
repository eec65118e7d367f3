package xds

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// typeState is one type of a stream: its subscription, and what the client is to have.
type typeState struct {
	*ads.Subscription
	rank     int
	to       resource.Set
	current  bool                 // to is what the latest context says
	waiting  time.Time            // since when it waits for clusters; zero: it does not
	keeping  map[string]time.Time // since when the removal of a name waits
	refusing bool                 // the client refuses some of it, and the metrics count that
}

// order decides what a stream sends next. It holds what the types owe one another:
//
//   - A listener or route that newly names a cluster waits until the cluster is usable, its endpoints
//     acknowledged, or for a bound. (Routes sent 300 ms before the endpoints cost requests.)
//   - A removed cluster waits until the listeners, and the routes that those name, have moved on, or for
//     a bound; while a refused listener or route still uses it, without bound. Its endpoints stay as long.
//   - A changed cluster warms anew: its endpoints are sent again.
//   - Nothing else waits. Endpoints and secrets never wait for clusters, whose acknowledgement Envoy
//     withholds until it has them.
type order struct {
	routeWait, removalWait time.Duration

	types   []*typeState // by rank
	warming ads.Doubt    // endpoints of changed clusters, until the client asks for endpoints
}

func newOrder(routeWait, removalWait time.Duration) order {
	return order{routeWait: routeWait, removalWait: removalWait}
}

// find returns the state of a type, nil when the client never asked for it.
func (o *order) find(typeURL string) *typeState {
	for _, t := range o.types {
		if t.Kind().TypeURL == typeURL {
			return t
		}
	}
	return nil
}

// add takes in a type.
func (o *order) add(sub *ads.Subscription, rank int) *typeState {
	t := &typeState{Subscription: sub, rank: rank}
	if sub.Kind().TypeURL == EndpointType {
		sub.Distrust(o.warming)
		o.warming = ads.Doubt{}
	}
	i, _ := slices.BinarySearchFunc(o.types, rank+1, func(t *typeState, rank int) int { return t.rank - rank })
	o.types = slices.Insert(o.types, i, t)
	return t
}

// outdate says that there is a newer context.
func (o *order) outdate() {
	for _, t := range o.types {
		t.current = false
	}
}

// settled says whether the client acknowledged everything.
func (o *order) settled() bool {
	for _, t := range o.types {
		if !t.Settled(t.to) {
			return false
		}
	}
	return true
}

// next returns the next response. Without one, wait is how long until time alone changes that, zero for never.
func (o *order) next(now time.Time) (r *ads.Response, wait time.Duration) {
	for _, t := range o.types {
		if !o.open(t, now) {
			wait = sooner(wait, t.waiting.Add(o.routeWait).Sub(now))
			continue
		}
		if r := t.Next(t.to, o.hold(t, now), now); r != nil {
			t.waiting = time.Time{}
			o.sent(t, r)
			return r, 0
		}
	}
	for _, t := range o.types {
		if o.hold(t, now) != nil {
			wait = o.keep(t, now, wait)
		}
	}
	return nil, wait
}

// keep notes since when each removal of t waits. It returns the sooner of wait and the next end of one.
func (o *order) keep(t *typeState, now time.Time, wait time.Duration) time.Duration {
	var keeping map[string]time.Time
	for name := range t.Kept() {
		since, ok := t.keeping[name]
		if !ok {
			since = now
		}
		if keeping == nil {
			keeping = map[string]time.Time{}
		}
		keeping[name] = since
		if left := since.Add(o.removalWait).Sub(now); left > 0 {
			wait = sooner(wait, left)
		}
	}
	t.keeping = keeping
	return wait
}

// late says which removals of t have waited for as long as they may. Each waits for itself: one that a refused
// route holds for long must not cost later ones their wait.
func (o *order) late(t *typeState, now time.Time) func(name string) bool {
	return func(name string) bool {
		since, ok := t.keeping[name]
		return ok && now.Sub(since) >= o.removalWait
	}
}

// sooner is the smaller of two waits, where zero means never.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

// sent sees to what a response makes necessary: the endpoints of changed clusters.
func (o *order) sent(t *typeState, r *ads.Response) {
	if t.Kind().TypeURL != ClusterType {
		return
	}
	eds := o.find(EndpointType)
	if eds == nil && t.Fresh() {
		return // it has no endpoints that it could believe to have
	}
	var names []string
	for c := range r.Changed() {
		names = appendRefs(names, c, EndpointType)
	}
	switch {
	case len(names) == 0:
	case eds == nil:
		o.warming = o.warming.Or(ads.Doubt{Names: names})
	default:
		eds.Force(names)
	}
}

// appendRefs appends the names of one type that r refers to.
func appendRefs(names []string, r *resource.Resource, typeURL string) []string {
	for _, ref := range r.Refs {
		if ref.TypeURL == typeURL {
			names = append(names, ref.Name)
		}
	}
	return names
}

// open says whether a type may be sent now: not while it newly names a cluster that the client does not
// have yet.
func (o *order) open(t *typeState, now time.Time) bool {
	if url := t.Kind().TypeURL; url != ListenerType && url != RouteType {
		return true
	}
	cds := o.find(ClusterType)
	if cds == nil || cds.InFlight() == 0 || !o.namesArriving(t, cds) {
		t.waiting = time.Time{}
		return true
	}
	if t.waiting.IsZero() {
		t.waiting = now
	}
	return now.Sub(t.waiting) >= o.routeWait
}

// namesArriving says whether what t would send names a cluster that is on its way and not usable yet.
func (o *order) namesArriving(t, cds *typeState) bool {
	found := false
	t.Pending(t.to, func(r *resource.Resource) bool {
		for _, ref := range r.Refs {
			if ref.TypeURL == ClusterType && cds.Arriving(ref.Name) && !o.hasEndpoints(cds.to.Get(ref.Name)) {
				found = true
				return false
			}
		}
		return true
	})
	return found
}

// hasEndpoints says whether a cluster that is on its way has endpoints to fetch, and the client
// acknowledged them.
func (o *order) hasEndpoints(cluster *resource.Resource) bool {
	eds := o.find(EndpointType)
	if cluster == nil || eds == nil {
		return false
	}
	names := appendRefs(nil, cluster, EndpointType)
	for _, name := range names {
		if !eds.Has(name) {
			return false
		}
	}
	return len(names) > 0
}

// hold returns which removals of a type have to wait; nil: none.
func (o *order) hold(t *typeState, now time.Time) func(name string) bool {
	switch t.Kind().TypeURL {
	case ClusterType:
		return o.holdClusters(t, o.late(t, now))
	case EndpointType:
		return o.holdEndpoints()
	case RouteType:
		return o.holdRoutes(o.late(t, now))
	}
	return nil
}

// holdClusters keeps clusters until listeners and routes have moved on, and those that a refused listener or
// route uses for as long as it is refused.
func (o *order) holdClusters(cds *typeState, late func(string) bool) func(string) bool {
	var asked, waits bool
	return func(name string) bool {
		if !asked {
			asked, waits = true, !o.moved(cds)
		}
		return waits && !late(name) || o.usedByRefused(ListenerType, ClusterType, name) || o.usedByRefused(RouteType, ClusterType, name) || o.usedByKept(name)
	}
}

// holdRoutes keeps routes until listeners have moved on.
func (o *order) holdRoutes(late func(string) bool) func(string) bool {
	return func(name string) bool {
		lds := o.find(ListenerType)
		return lds != nil && !late(name) && !lds.Settled(lds.to) || o.usedByRefused(ListenerType, RouteType, name)
	}
}

// holdEndpoints keeps the endpoints of clusters that are to be removed: they serve until that has
// happened, and then the client forgets them by itself.
func (o *order) holdEndpoints() func(string) bool {
	cds := o.find(ClusterType)
	if cds == nil {
		return nil
	}
	var wanted map[string]struct{}
	return func(name string) bool {
		if cds.to.Get(name) != nil {
			return false
		}
		if wanted == nil {
			wanted = map[string]struct{}{}
			for c := range cds.to.All() {
				for _, n := range appendRefs(nil, c, EndpointType) {
					wanted[n] = struct{}{}
				}
			}
		}
		_, ok := wanted[name]
		return !ok
	}
}

// moved says whether listeners, the routes that they name and all other routes are what the latest
// context says.
func (o *order) moved(cds *typeState) bool {
	lds, rds := o.find(ListenerType), o.find(RouteType)
	for _, t := range []*typeState{lds, rds} {
		if t == nil && !cds.Fresh() {
			return false // an earlier stream gave it some, and it will ask
		}
		if t != nil && !t.Settled(t.to) {
			return false
		}
	}
	if lds == nil {
		return true
	}
	for l := range lds.to.All() {
		for _, name := range appendRefs(nil, l, RouteType) {
			if rds == nil || !rds.Has(name) {
				return false
			}
		}
	}
	return true
}

// usedByRefused says whether a resource of type user, which the client refused in its latest version,
// uses name of type used in the version that the client still has, or may do so.
func (o *order) usedByRefused(user, used, name string) bool {
	t := o.find(user)
	if t == nil {
		return false
	}
	for _, f := range t.Refusals() {
		if !f.HadKnown || f.Had != nil && slices.Contains(f.Had.Refs, resource.Ref{TypeURL: used, Name: name}) {
			return true
		}
	}
	return false
}

// usedByKept says whether a route that is still to be removed uses a cluster.
func (o *order) usedByKept(name string) bool {
	rds := o.find(RouteType)
	if rds == nil {
		return false
	}
	for r := range rds.KeptResources() {
		if slices.Contains(r.Refs, resource.Ref{TypeURL: ClusterType, Name: name}) {
			return true
		}
	}
	return false
}
