package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// virtualHost is one encoded virtual host of a route configuration. Immutable.
type virtualHost struct {
	name string
	// body is the encoded envoy.config.route.v3.VirtualHost.
	body []byte
	// clusters are those that its routes name, in their order.
	clusters []string
	// all says that it takes requests for every host.
	all bool
	// reachable says that it has a domain.
	reachable bool
	// spec is what it was made of, kept so that its parts are found again.
	spec virtualHostSpec
}

// virtualHostSpec is everything that a virtual host depends on.
type virtualHostSpec struct {
	name    string
	domains *intern.List[string]
	// first and more are tried in order: of all of them the routes with conditions, then the first
	// of those without. Both may be nil.
	first *encodedRoutes
	more  *intern.List[*encodedRoutes]
	// requireTLS answers plaintext requests with a redirection to https.
	requireTLS bool
}

// encodedRoutes are routes as a field of a virtual host, ready to be put together. Immutable.
type encodedRoutes struct {
	// specific are the routes that have conditions, in order; catchAll is the one without, may be
	// empty.
	specific, catchAll []byte
	// clusters are those that specific names, catchAllClusters those of catchAll.
	clusters, catchAllClusters []string
	// refused, when not nil, says why Envoy would refuse the routes: the hosts that have them
	// answer with 503.
	refused *feed.Problem
}

func (r *encodedRoutes) isRefused() bool { return r.refused != nil }

// The fields of envoy.config.route.v3.VirtualHost.
const (
	fieldHostName     protowire.Number = 1
	fieldHostDomains  protowire.Number = 2
	fieldHostRoutes   protowire.Number = 3
	fieldHostTLS      protowire.Number = 4
	fieldHostAttempts protowire.Number = 14
)

// buildVirtualHost puts encoded routes together: the same bytes as the deterministic encoding of
// the whole message.
func buildVirtualHost(s virtualHostSpec) *virtualHost {
	size := len(s.name) + 32
	domains := usableDomains(s.domains.Items())
	for _, d := range domains {
		size += len(d) + 4
	}
	parts := s.more.Items()
	if s.first != nil {
		parts = append([]*encodedRoutes{s.first}, parts...)
	}
	for _, p := range parts {
		size += len(p.specific) + len(p.catchAll)
	}
	if slices.ContainsFunc(parts, (*encodedRoutes).isRefused) {
		parts = []*encodedRoutes{unavailable()}
	}
	b := make([]byte, 0, size)
	b = envoy.AppendText(b, fieldHostName, s.name)
	for _, d := range domains {
		b = envoy.AppendText(b, fieldHostDomains, d)
	}
	var clusters []string
	for _, p := range parts {
		b = append(b, p.specific...)
		clusters = append(clusters, p.clusters...)
	}
	for _, p := range parts {
		if len(p.catchAll) > 0 {
			b = append(b, p.catchAll...)
			clusters = append(clusters, p.catchAllClusters...)
			break // nothing reaches a second one
		}
	}
	if s.requireTLS {
		b = envoy.AppendUint(b, fieldHostTLS, uint64(routev3.VirtualHost_ALL))
	}
	b = envoy.AppendUint(b, fieldHostAttempts, 1)
	return &virtualHost{
		name: s.name, body: b, clusters: clusters,
		all: slices.Contains(domains, envoy.AnyDomain), reachable: len(domains) > 0, spec: s,
	}
}

// usableDomains are those that a request can be for, and that Envoy takes.
func usableDomains(domains []string) []string {
	if err := (&routev3.VirtualHost{Name: "-", Domains: domains}).Validate(); err == nil {
		return domains
	}
	return slices.DeleteFunc(slices.Clone(domains), func(d string) bool {
		return (&routev3.VirtualHost{Name: "-", Domains: []string{d}}).Validate() != nil
	})
}

// unavailable answers every request with 503. It stands for routes that Envoy would refuse: without
// them, requests would go to a host with a wildcard, or to the wrong one of the routes that are
// left.
func unavailable() *encodedRoutes {
	const serviceUnavailable = 503
	return encodeRoutes([]*routev3.Route{{
		Name:   "refused",
		Match:  envoy.EveryPath(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: serviceUnavailable}},
	}})
}

// checkRoutes finds what breaks Envoy's rules.
func checkRoutes(routes []*routev3.Route) error {
	for _, r := range routes {
		if err := r.Validate(); err != nil {
			return err
		}
		if err := envoy.CheckWrapped(r.TypedPerFilterConfig); err != nil {
			return err
		}
	}
	return nil
}

// takesAll says whether it takes requests for every host.
func (h *virtualHost) takesAll() bool { return h.all }

// encodeRoutes encodes routes, the last of which may be a catch-all.
func encodeRoutes(routes []*routev3.Route) *encodedRoutes {
	out := &encodedRoutes{}
	for _, r := range routes {
		body := resource.Encode(r)
		if matchesAll(r.Match) {
			out.catchAll, out.catchAllClusters = envoy.AppendBytes(nil, fieldHostRoutes, body), clustersOf(r)
			break
		}
		out.specific = envoy.AppendBytes(out.specific, fieldHostRoutes, body)
		out.clusters = append(out.clusters, clustersOf(r)...)
	}
	return out
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

// defaultRouteSpec is the route of a service for which no VirtualService speaks.
type defaultRouteSpec struct {
	host  string
	port  uint32
	hash  *networking.LoadBalancerSettings_ConsistentHashLB
	retry *retryDefaults
}

func buildDefaultRoute(s defaultRouteSpec) *encodedRoutes {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: envoy.OutboundCluster(s.port, "", s.host)},
		RetryPolicy:      s.retry.policy(nil, s.hash != nil),
	}
	setTimeout(action, nil)
	if p := hashPolicy(s.hash); p != nil {
		action.HashPolicy = []*routev3.RouteAction_HashPolicy{p}
	}
	routes := []*routev3.Route{{
		Name:      envoy.DefaultRouteName,
		Match:     envoy.EveryPath(),
		Action:    &routev3.Route_Route{Route: action},
		Decorator: &routev3.Decorator{Operation: hostPort(s.host, s.port) + "/*"},
	}}
	if err := checkRoutes(routes); err != nil {
		return &encodedRoutes{refused: envoy.Refused(nil, "the route to "+hostPort(s.host, s.port)+" answers with 503", err)}
	}
	return encodeRoutes(routes)
}

// unknownHosts says what happens to requests for hosts that nobody declared.
// Source: Istio's outboundTrafficPolicy.
type unknownHosts struct {
	// cluster is where they are sent; empty: they are answered with 502.
	cluster string
}

// unknownHostsOf reads the policy that holds for the proxy.
func unknownHostsOf(sc *push.Scope) unknownHosts {
	if c := layout.CatchAllCluster(sc); c != envoy.BlackHole {
		return unknownHosts{cluster: c}
	}
	return unknownHosts{}
}

// badGateway is the answer to a request for a host that is not to be reached.
const badGateway = 502

func buildUnknownHosts(u unknownHosts) *virtualHost {
	h := &routev3.VirtualHost{Name: envoy.BlockAllHost, Domains: []string{envoy.AnyDomain}, IncludeRequestAttemptCount: true}
	route := &routev3.Route{Match: envoy.EveryPath()}
	if u.cluster == "" {
		route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: badGateway}}
	} else {
		h.Name = envoy.AllowAnyHost
		action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: u.cluster}}
		setTimeout(action, nil)
		route.Action = &routev3.Route_Route{Route: action}
	}
	route.Name = h.Name
	h.Routes = []*routev3.Route{route}
	return &virtualHost{name: h.Name, body: resource.Encode(h), clusters: clustersOf(route), all: true, reachable: true}
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
