package route

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// ruleSpec is everything that the routes of one VirtualService depend on, for one port and gateway.
type ruleSpec struct {
	vs      *push.VirtualService
	port    uint32
	gateway string
	// tls says that clients speak https.
	tls bool
	// sources are the matches by source that hold for the proxy; nil where it has none.
	sources *intern.List[any]
	// destinations are those of httpDestinations, in that order.
	destinations *intern.List[routeDestination]
	retry        *networking.HTTPRetry
	// forwardedHost adds x-forwarded-host where the host is rewritten.
	forwardedHost bool
}

// routeDestination is what a route needs to know of a destination. Comparable.
type routeDestination struct {
	// port is the number in its cluster's name.
	port uint32
	// hash is how its cluster chooses endpoints by a property of the request; nil: it does not.
	hash *networking.LoadBalancerSettings_ConsistentHashLB
}

// rulePlanner turns VirtualServices into routes for one kind of proxies. Comparable.
type rulePlanner struct {
	generator    *Generator
	destinations *push.Destinations
	sources      *intern.List[any]
	retry        *networking.HTTPRetry // the mesh's; nil: Istio's default
	// headers say which ones the proxy sets; nil: Istio's defaults.
	headers *mesh.ProxyConfig_ProxyHeaders
}

// uncounted says that requests do not get x-envoy-attempt-count.
func (p rulePlanner) uncounted() bool { return p.headers.GetAttemptCount().GetDisabled().GetValue() }

// rules returns the routes of a VirtualService that requests to port of gateway may take.
func (p rulePlanner) rules(info *routeInfo, port uint32, gateway string, tls bool) *builtRoutes {
	spec := ruleSpec{vs: info.vs, port: port, gateway: gateway, tls: tls, retry: p.retry,
		destinations:  p.resolve(info.destinations, port),
		forwardedHost: p.headers.GetXForwardedHost().GetEnabled().GetValue()}
	if info.conditional {
		spec.sources = p.sources
	}
	return p.generator.rules.Get(spec)
}

// resolve looks destinations up. One that names no port means the only port of its service, else
// the port that the client had called. A host that nobody declared gets a cluster name that does
// not exist, which Envoy answers with 503, as in Istio.
func (p rulePlanner) resolve(destinations []*networking.Destination, port uint32) *intern.List[routeDestination] {
	if len(destinations) == 0 {
		return nil
	}
	out := make([]routeDestination, len(destinations))
	for i, d := range destinations {
		out[i].port = layout.DestinationPort(d, p.destinations, port)
		out[i].hash = p.hash(d.Host, d.Subset, out[i].port)
	}
	return p.generator.destinations.Of(out)
}

// buildRule makes the routes of a VirtualService, in their order, up to the first without
// conditions. Source: istio.io, VirtualService.http: "the first rule matching an incoming request
// is used".
func buildRule(s ruleSpec) *builtRoutes {
	routes := s.routes()
	out := &builtRoutes{specific: routes, from: s.vs.Object}
	if last := len(routes) - 1; last >= 0 && matchesAll(routes[last].Match) {
		out.specific, out.catchAll = routes[:last], routes[last]
	}
	return out
}

// routes are those of the VirtualService.
func (s ruleSpec) routes() []*routev3.Route {
	b := newRouteBuilder(s)
	var out []*routev3.Route
	for _, r := range s.vs.Spec.Http {
		if len(r.Match) == 0 {
			return append(out, b.route(r, nil))
		}
		for _, m := range r.Match {
			if !matchApplies(m, s.port, s.gateway, s.sources) {
				continue
			}
			route := b.route(r, m)
			out = append(out, route)
			if matchesAll(route.Match) {
				return out
			}
		}
	}
	return out
}
