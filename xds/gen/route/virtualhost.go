package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// virtualHost is one virtual host of a route configuration. Immutable.
type virtualHost struct {
	name string
	// body is an encoded RouteConfiguration that has nothing but the host.
	body []byte
	// clusters are those that its routes name, in their order.
	clusters []string
	// all says that it takes requests for every host.
	all bool
	// problem, when not nil, says why Envoy would refuse its routes: it answers with 503.
	problem *feed.Problem
	// spec is what it was made of, kept so that its parts are found again.
	spec virtualHostSpec
}

// virtualHostSpec is everything that a virtual host depends on.
type virtualHostSpec struct {
	name    string
	domains *intern.List[string]
	// rules are tried in order: of all of them the routes with conditions, then the first of those
	// without.
	rules *intern.List[*builtRoutes]
	// requireTLS answers plaintext requests with a redirection to https.
	requireTLS bool
	// uncounted leaves out x-envoy-attempt-count.
	uncounted bool
	// service, port, hash and retry are set where no VirtualService speaks for a service: all requests
	// go to it.
	service *registry.Service
	port    uint32
	hash    *networking.LoadBalancerSettings_ConsistentHashLB
	retry   *networking.HTTPRetry
}

// builtRoutes are the routes of one VirtualService. Immutable.
type builtRoutes struct {
	// specific are the routes that have conditions, in order.
	specific []*routev3.Route
	// catchAll is the one without; nil: there is none.
	catchAll *routev3.Route
	from     *config.Object
}

// buildVirtualHost makes a virtual host. One that Envoy would refuse answers every request with 503:
// without it, requests would go to a host with a wildcard.
func buildVirtualHost(s virtualHostSpec) *virtualHost {
	out := &virtualHost{name: s.name, spec: s}
	h := &routev3.VirtualHost{Name: s.name, Domains: s.domains.Items(), IncludeRequestAttemptCount: !s.uncounted}
	var catchAll *routev3.Route
	for _, r := range s.rules.Items() {
		h.Routes = append(h.Routes, r.specific...)
		if catchAll == nil {
			catchAll = r.catchAll // nothing reaches a second one
		}
	}
	if s.service != nil {
		catchAll = s.defaultRoute()
	}
	if catchAll != nil {
		h.Routes = append(h.Routes, catchAll)
	}
	if s.requireTLS {
		h.RequireTls = routev3.VirtualHost_ALL
	}
	if err := check(h); err != nil {
		var from *config.Object
		if s.rules.Len() == 1 {
			from = s.rules.Items()[0].from
		}
		out.problem = envoy.Refused(from, "the virtual host "+s.name+" answers with 503", err)
		h.Routes = []*routev3.Route{unavailable()}
	}
	out.finish(h)
	return out
}

// finish encodes the message.
func (h *virtualHost) finish(m *routev3.VirtualHost) {
	h.all = slices.Contains(m.Domains, envoy.AnyDomain)
	for _, r := range m.Routes {
		h.clusters = append(h.clusters, clustersOf(r)...)
	}
	h.body = resource.Encode(&routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{m}})
}

// unavailable answers every request with 503.
func unavailable() *routev3.Route {
	return &routev3.Route{
		Name:   "refused",
		Match:  envoy.EveryPath(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 503}},
	}
}

// check finds what breaks Envoy's rules.
func check(h *routev3.VirtualHost) error {
	if err := h.Validate(); err != nil {
		return err
	}
	for _, r := range h.Routes {
		if err := envoy.CheckWrapped(r.TypedPerFilterConfig); err != nil {
			return err
		}
	}
	return nil
}

// clustersOf lists the clusters that a route names.
func clustersOf(r *routev3.Route) []string {
	action := r.GetRoute()
	var out []string
	if c := action.GetCluster(); c != "" {
		out = append(out, c)
	}
	for _, w := range action.GetWeightedClusters().GetClusters() {
		out = append(out, w.Name)
	}
	for _, m := range action.GetRequestMirrorPolicies() {
		out = append(out, m.Cluster)
	}
	return out
}

// defaultRoute is the route to the service.
func (s virtualHostSpec) defaultRoute() *routev3.Route {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: envoy.OutboundCluster(s.port, "", s.service.Host)},
		RetryPolicy:      retryPolicy(s.retry, s.hash != nil),
	}
	setTimeout(action, nil)
	if p := hashPolicy(s.hash); p != nil {
		action.HashPolicy = []*routev3.RouteAction_HashPolicy{p}
	}
	return &routev3.Route{
		Name:      envoy.DefaultRouteName,
		Match:     envoy.EveryPath(),
		Action:    &routev3.Route_Route{Route: action},
		Decorator: &routev3.Decorator{Operation: hostPort(s.service.Host, s.port) + "/*"},
	}
}

// unknownHosts takes requests for hosts that nobody declared: to a cluster, or to envoy.BlackHole, by
// which they are answered with 502. Source: Istio's outboundTrafficPolicy, and pilot/pkg/networking/util
// for the names.
func unknownHosts(cluster string, uncounted bool) *virtualHost {
	route := &routev3.Route{Name: "block_all", Match: envoy.EveryPath()}
	if cluster == envoy.BlackHole {
		route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 502}}
		route.Metadata = envoy.NamedForMetrics(envoy.BlackHole)
	} else {
		route.Name = "allow_any"
		if cluster == envoy.UnknownHosts {
			route.Name = envoy.UnknownHostsRoute
		}
		action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}
		setTimeout(action, nil)
		route.Action = &routev3.Route_Route{Route: action}
	}
	out := &virtualHost{name: route.Name}
	out.finish(&routev3.VirtualHost{Name: route.Name, Domains: []string{envoy.AnyDomain},
		Routes: []*routev3.Route{route}, IncludeRequestAttemptCount: !uncounted})
	return out
}

// setTimeout sets the whole time that a request may take, gRPC or not; nil: no limit. What a gRPC
// client asks for by its own header is left to client and server. Source: istio.io,
// HTTPRoute.timeout: disabled by default. Istio sets max_grpc_timeout too, about which Envoy warns
// for every single route; max_stream_duration would switch this timeout off.
func setTimeout(action *routev3.RouteAction, timeout *durationpb.Duration) {
	if timeout == nil {
		timeout = &durationpb.Duration{}
	}
	action.Timeout = timeout
}
