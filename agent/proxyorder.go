package agent

import (
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// What Envoy's types owe one another. The control plane keeps the order, since it hears Envoy's own acknowledgements; these
// rules are for an Envoy that comes back after the agent took in more than one change without it.
const (
	// proxyRouteWait is how long listeners and routes wait for new clusters and their endpoints.
	proxyRouteWait = 2 * time.Second
	// proxyRemovalWait is how long removed clusters and routes wait for listeners and routes to move on.
	proxyRemovalWait = 10 * time.Second
)

// next returns the next response for Envoy. Without one, wait is how long until time alone changes that, zero for never.
func (st *envoyStream) next(now time.Time) (r *ads.Response, wait time.Duration) {
	for _, sub := range st.subs {
		if !st.free(sub, now) {
			wait = sooner(wait, sub.blocked.Add(proxyRouteWait).Sub(now))
			continue
		}
		if r := sub.Next(st.relay.target(sub.held), st.hold(sub, now), now); r != nil {
			sub.blocked = time.Time{}
			st.sent(sub, r)
			return r, 0
		}
	}
	for _, sub := range st.subs {
		waits := false
		for range sub.Kept() {
			waits = true
			break
		}
		switch {
		case !waits:
			sub.holding = time.Time{}
			continue
		case sub.holding.IsZero():
			sub.holding = now
		}
		if left := sub.holding.Add(proxyRemovalWait).Sub(now); left > 0 {
			wait = sooner(wait, left)
		}
	}
	return nil, wait
}

// sooner is the smaller of two waits, where zero means never.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

// free says whether a type may be sent now: listeners and routes wait for clusters that are on their way.
func (st *envoyStream) free(sub *envoySub, now time.Time) bool {
	if url := sub.held.kind.TypeURL; url != listenerTypeURL && url != routeTypeURL {
		return true
	}
	if !st.arriving() {
		sub.blocked = time.Time{}
		return true
	}
	if sub.Settled(st.relay.target(sub.held)) {
		return true // there is nothing to say
	}
	if sub.blocked.IsZero() {
		sub.blocked = now
	}
	return now.Sub(sub.blocked) >= proxyRouteWait
}

// arriving says whether a cluster is on its way whose endpoints Envoy has not acknowledged.
func (st *envoyStream) arriving() bool {
	cds, eds := st.find(clusterTypeURL), st.find(endpointTypeURL)
	if cds == nil || cds.InFlight() == 0 {
		return false
	}
	to := st.relay.target(cds.held)
	for name := range cds.Arrivals() {
		r := to.Get(name)
		if r == nil {
			continue
		}
		assignment, waits := assignmentOf(name, r.Body())
		if !waits || eds == nil || !eds.Has(assignment) {
			return true
		}
	}
	return false
}

// hold returns which removals of a type have to wait; nil: none.
func (st *envoyStream) hold(sub *envoySub, now time.Time) func(name string) bool {
	var before []string
	switch sub.held.kind.TypeURL {
	case clusterTypeURL, endpointTypeURL:
		before = []string{listenerTypeURL, routeTypeURL}
	case routeTypeURL:
		before = []string{listenerTypeURL}
	default:
		return nil
	}
	if !sub.holding.IsZero() && now.Sub(sub.holding) >= proxyRemovalWait {
		return nil
	}
	// An Envoy that lived on will ask for listeners and routes soon.
	young := !sub.Fresh() && now.Sub(st.since) < proxyRemovalWait
	return func(string) bool {
		for _, typeURL := range before {
			if o := st.find(typeURL); o == nil && young || o != nil && !o.Settled(st.relay.target(o.held)) {
				return true
			}
		}
		return false
	}
}

// sent sees to what a response makes necessary: Envoy waits for the endpoints of a cluster that changed.
func (st *envoyStream) sent(sub *envoySub, r *ads.Response) {
	if sub.held.kind.TypeURL != clusterTypeURL {
		return
	}
	eds := st.find(endpointTypeURL)
	if eds == nil && sub.Fresh() {
		return // it has no endpoints that it could believe to have
	}
	var names []string
	for c := range r.Changed() {
		if name, waits := assignmentOf(c.Name, c.Body()); waits {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
	case eds == nil:
		st.warming = st.warming.Or(ads.Doubt{Names: names})
	default:
		eds.Force(names)
	}
}
