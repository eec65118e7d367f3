package agent

import (
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// What Envoy's types owe one another. The control plane keeps the order, since it hears Envoy's own acknowledgements; these
// rules are for an Envoy that comes back after the agent took in more than one change without it.
const (
	// proxyRouteWait is how long what newly names a cluster waits for it and its endpoints.
	proxyRouteWait = 2 * time.Second
	// proxyRemovalWait is how long removed clusters and routes wait for what may name them to move on.
	proxyRemovalWait = 10 * time.Second
)

// order is that of a new stream of Envoy. What listeners and routes name is not decoded.
func (r *relay) order() ads.Order {
	held := r.find(extensionTypeURL)
	return ads.Order{RouteWait: proxyRouteWait, RemovalWait: proxyRemovalWait, Blind: true, Extended: held != nil && len(held.entries) > 0}
}

// next returns the next response for Envoy. Without one, wait is how long until time alone changes that, zero for never.
func (st *envoyStream) next(now time.Time) (r *ads.Response, wait time.Duration) {
	for _, sub := range st.subs {
		sub.To = st.relay.target(sub.held)
	}
	return st.order.Next(now)
}
