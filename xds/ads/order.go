package ads

import (
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Turn is one type of a stream: its subscription, and what the client is to have.
type Turn struct {
	*Subscription
	// To is what the client is to have. Its owner keeps it up to date; Order reads it.
	To resource.Set

	rank    int
	waiting time.Time // since when it waits for clusters; zero: it does not
	keeping since     // removals that wait, by name
	lagging since     // changes that wait, by name
}

// Order decides what a stream sends next. It holds what Envoy's types owe one another:
//
//   - A listener or route that newly names a cluster waits until the cluster is usable, its endpoints
//     acknowledged, or for RouteWait. (Routes sent 300 ms before the endpoints cost requests.) An extension that newly
//     asks a cluster does so too, alone. Of what else there is to say of extensions that alone waits which lets
//     through more than before, until others that it names, and that let through less, are acknowledged: what a policy that
//     denied leaves to one that asks.
//   - A removed cluster waits until the listeners, and the routes and extensions that those name, have moved on, or for
//     RemovalWait; while a refused listener, route or extension still uses it, without bound. Its endpoints stay as long.
//     One that an extension asked stays for RemovalWait after that: what was asked of it is still to be answered.
//   - A changed cluster warms anew: its endpoints are sent again.
//   - Nothing else waits. Endpoints and secrets never wait for clusters, whose acknowledgement Envoy
//     withholds until it has them.
//
// Not safe for concurrent use.
type Order struct {
	// RouteWait is how long what newly names a cluster waits for it. Then it is sent, and what
	// needs the cluster fails.
	RouteWait time.Duration
	// RemovalWait is how long what is removed waits for what names it.
	RemovalWait time.Duration

	turns   []*Turn             // by rank
	warming Doubt               // endpoints of changed clusters, until the client asks for endpoints
	asking  map[string][]string // by extension: the clusters that it asks as it was sent last
	left    since               // clusters that an extension asked, and asks no more
}

// Find returns the turn of a type, nil when the client never asked for it.
func (o *Order) Find(typeURL string) *Turn {
	for _, t := range o.turns {
		if t.Kind().TypeURL == typeURL {
			return t
		}
	}
	return nil
}

// Add takes in a type. Those of lower rank come first; at is its place among those that there are.
func (o *Order) Add(sub *Subscription, rank int) (t *Turn, at int) {
	t = &Turn{Subscription: sub, rank: rank}
	if sub.Kind().TypeURL == resource.EndpointType {
		sub.Distrust(o.warming)
		o.warming = Doubt{}
	}
	at, _ = slices.BinarySearchFunc(o.turns, rank+1, func(t *Turn, rank int) int { return t.rank - rank })
	o.turns = slices.Insert(o.turns, at, t)
	return t, at
}

// Settled says whether the client acknowledged everything.
func (o *Order) Settled() bool {
	for _, t := range o.turns {
		if !t.Settled(t.To) {
			return false
		}
	}
	return true
}

// Next returns the next response. Without one, wait is how long until time alone changes that, zero
// for never.
func (o *Order) Next(now time.Time) (r *Response, wait time.Duration) {
	for _, t := range o.turns {
		if !o.open(t, now) {
			wait = sooner(wait, t.waiting.Add(o.RouteWait).Sub(now))
			continue
		}
		if r := t.Next(t.To, o.waits(t, now), now); r != nil {
			t.waiting = time.Time{}
			o.sent(t, r, now)
			return r, 0
		}
	}
	for _, t := range o.turns {
		t.keeping = t.keeping.renewed(t.Kept(), now)
		t.lagging = t.lagging.renewed(t.Lagging(), now)
		wait = t.lagging.end(t.keeping.end(wait, o.RemovalWait, now), o.RouteWait, now)
	}
	return nil, o.left.end(wait, o.RemovalWait, now)
}

// sent sees to what a response makes necessary.
func (o *Order) sent(t *Turn, r *Response, now time.Time) {
	switch t.Kind().TypeURL {
	case resource.ClusterType:
		o.warm(t, r)
	case resource.ExtensionConfigType:
		o.leave(r, now)
	}
}

// warm makes the endpoints of changed clusters be sent again.
func (o *Order) warm(cds *Turn, r *Response) {
	eds := o.Find(resource.EndpointType)
	if eds == nil && cds.Fresh() {
		return // it has no endpoints that it could believe to have
	}
	var names []string
	for c := range r.Changed() {
		names = appendRefs(names, c, resource.EndpointType)
	}
	switch {
	case len(names) == 0:
	case eds == nil:
		o.warming = o.warming.Or(Doubt{Names: names})
	default:
		eds.Force(names)
	}
}

// leave notes which clusters the extensions in a response ask no more.
func (o *Order) leave(r *Response, now time.Time) {
	maps.DeleteFunc(o.left, func(name string, _ time.Time) bool { return o.left.over(name, o.RemovalWait, now) })
	for e := range r.Changed() {
		for _, name := range o.asking[e.Name] {
			if o.left == nil {
				o.left = since{}
			}
			o.left[name] = now
		}
		delete(o.asking, e.Name)
		if names := appendRefs(nil, e, resource.ClusterType); len(names) > 0 {
			if o.asking == nil {
				o.asking = map[string][]string{}
			}
			o.asking[e.Name] = names
		}
	}
	for _, names := range o.asking {
		for _, name := range names {
			delete(o.left, name)
		}
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
