package route

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes route configurations.
//
// A route configuration is put together from encoded virtual hosts, and those from encoded routes.
// Each of the three is remembered by its spec, so that a changed VirtualService costs the virtual
// hosts that it governs, however many others stand beside them.
type Generator struct {
	layouts *layout.Layouts // routes are those that the listeners name

	names        intern.Lists[string]
	sources      intern.Lists[any]
	destinations intern.Lists[routeDestination]
	parts        intern.Lists[*encodedRoutes]
	lists        intern.Lists[*virtualHost]

	retries  *memo.Func[*networking.HTTPRetry, retryDefaults]
	infos    *memo.Func[*push.VirtualService, routeInfo]
	indexes  *memo.Func[routeIndexIn, routeIndex]
	hashing  *memo.Func[*push.Destinations, hashing]
	ports    *memo.Func[*intern.List[*registry.Service], portIndex]
	hosts    *memo.Func[serviceHostsIn, serviceHosts]
	rules    *memo.Func[ruleSpec, encodedRoutes]
	defaults *memo.Func[defaultRouteSpec, encodedRoutes]
	plain    *memo.Func[serviceHost, virtualHost]
	governed *memo.Func[governedIn, governedHost]
	virtual  *memo.Func[virtualHostSpec, virtualHost]
	unknown  *memo.Func[unknownHosts, virtualHost]
	configs  *memo.Func[routeConfigSpec, resource.Resource]
	sidecars *memo.Func[outboundRoutesIn, routeLayer]
	routers  *memo.Func[gatewayRoutesIn, routeLayer]
}

func New(layouts *layout.Layouts) *Generator {
	return &Generator{
		layouts:  layouts,
		retries:  memo.New(newRetryDefaults),
		infos:    memo.New(newRouteInfo),
		indexes:  memo.New(newRouteIndex),
		hashing:  memo.New(newHashing),
		ports:    memo.New(newPortIndex),
		hosts:    memo.New(newServiceHosts),
		rules:    memo.NewMarking(buildRule, (*encodedRoutes).isRefused),
		defaults: memo.NewMarking(buildDefaultRoute, (*encodedRoutes).isRefused),
		plain:    memo.New(buildPlainHost),
		governed: memo.New(planGoverned),
		virtual:  memo.New(buildVirtualHost),
		unknown:  memo.New(buildUnknownHosts),
		configs:  memo.New(buildRouteConfig),
		sidecars: memo.New(planOutboundRoutes),
		routers:  memo.New(planGatewayRoutes),
	}
}

// Set returns the route configurations of a scope.
func (t *Generator) Set(sc *push.Scope) resource.Set {
	if sc.Type == push.Router {
		return resource.Set{Shared: &t.routers.Get(gatewayRoutesInOf(t, sc)).Layer}
	}
	return resource.Set{Shared: &t.sidecars.Get(outboundRoutesInOf(t, sc)).Layer}
}

// routeLayer is a layer of route configurations together with what it was planned from. Whoever
// holds the layer holds all of it (a pointer into a struct keeps the struct), so that the next plan
// finds the parts that did not change.
type routeLayer struct {
	resource.Layer
	held []any
}

// hold keeps v as long as the layer.
func (l *routeLayer) hold(v any) { l.held = append(l.held, v) }

// routeConfigSpec is a whole route configuration.
type routeConfigSpec struct {
	name  string
	hosts *intern.List[*virtualHost]
	// withPorts says that the domains of the hosts tell ports apart; else the port of a request's
	// host is ignored.
	withPorts bool
}

// maxDirectResponse is the largest body of a direct response, in bytes.
// Source: Istio allows 1 MiB, where Envoy's default is 4 KiB.
const maxDirectResponse = 1 << 20

// The fields of envoy.config.route.v3.RouteConfiguration.
const (
	fieldConfigName       protowire.Number = 1
	fieldConfigHosts      protowire.Number = 2
	fieldValidateClusters protowire.Number = 7
	fieldMaxDirect        protowire.Number = 11
	fieldIgnorePort       protowire.Number = 14
)

func buildRouteConfig(s routeConfigSpec) *resource.Resource {
	return resource.New(resource.RouteType, s.name, clusterRefs(s.hosts.Items()), func() []byte { return encodeRouteConfig(s) })
}

// clusterRefs lists the clusters that hosts name, each once.
func clusterRefs(hosts []*virtualHost) []resource.Ref {
	refs := make([]resource.Ref, 0, len(hosts))
	seen := make(map[string]struct{}, len(hosts))
	for _, h := range hosts {
		for _, c := range h.clusters {
			if _, dup := seen[c]; !dup {
				seen[c] = struct{}{}
				refs = append(refs, resource.Ref{TypeURL: resource.ClusterType, Name: c})
			}
		}
	}
	return refs
}

// encodeRouteConfig puts encoded virtual hosts together: the same bytes as the deterministic
// encoding of the whole message. Clusters are not validated: a route may precede its cluster.
func encodeRouteConfig(s routeConfigSpec) []byte {
	size := len(s.name) + 64
	for _, h := range s.hosts.Items() {
		size += len(h.body) + 8
	}
	b := make([]byte, 0, size)
	b = envoy.AppendText(b, fieldConfigName, s.name)
	for _, h := range s.hosts.Items() {
		if h.reachable {
			b = envoy.AppendBytes(b, fieldConfigHosts, h.body)
		}
	}
	b = envoy.AppendBytes(b, fieldValidateClusters, nil) // BoolValue{false}
	b = envoy.AppendUint32Value(b, fieldMaxDirect, maxDirectResponse)
	if !s.withPorts {
		b = envoy.AppendUint(b, fieldIgnorePort, 1)
	}
	return b
}

// Refused are the routes that Envoy would refuse, among those that somebody holds.
func (t *Generator) Refused() []feed.Problem {
	var out []feed.Problem
	for _, r := range slices.Concat(t.rules.Marked(), t.defaults.Marked()) {
		out = append(out, *r.refused)
	}
	return out
}
