package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes route configurations.
type Generator struct {
	layouts *layout.Layouts // routes are those that the listeners name

	names        intern.Lists[string]
	destinations intern.Lists[routeDestination]
	parts        intern.Lists[*builtRoutes]
	lists        intern.Lists[*virtualHost]

	services *memo.Func[serviceHostsIn, serviceHosts]
	rules    *memo.Func[ruleSpec, builtRoutes]
	hosts    *memo.Func[virtualHostSpec, virtualHost]
	configs  *memo.Func[routeConfigSpec, resource.Resource]
}

// New makes a Generator.
func New(layouts *layout.Layouts) *Generator {
	g := &Generator{layouts: layouts, rules: memo.New(buildRule), hosts: memo.New(buildVirtualHost),
		configs: memo.New(buildRouteConfig)}
	g.services = memo.New(g.findServices)
	return g
}

// Plans implements envoy.Kind.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	planner := rulePlanner{generator: g, destinations: sc.Destinations, sources: sc.RouteSources,
		retry: sc.Mesh.Config.GetDefaultHttpRetryPolicy(), headers: sc.ProxyConfig.GetProxyHeaders()}
	if sc.Type == push.Router {
		return gatewayRoutesIn{planner, g.layouts.Gateway(sc), sc.Gateways}, nil
	}
	out := outboundRoutesIn{planner, g.layouts.Outbound(sc), sc.Egress, layout.CatchAllRequests(sc),
		layout.CatchAllCluster(sc), sc.Mesh.Domain, ""}
	if sc.Cluster != "" {
		out.namespace = sc.Namespace
	}
	return out, nil
}

// routeConfigSpec is a whole route configuration.
type routeConfigSpec struct {
	name  string
	hosts *intern.List[*virtualHost]
	// unknown is the cluster of requests for hosts that nobody declared, of which hosts says nothing;
	// empty: no virtual host is added.
	unknown string
	// withPorts says that the domains of the hosts tell ports apart; else the port of a request's
	// host is ignored.
	withPorts bool
	// uncounted is for the virtual host of unknown, see virtualHostSpec.
	uncounted bool
}

// config makes a route configuration of a layer.
func (g *Generator) config(s routeConfigSpec) *envoy.Part {
	out := &envoy.Part{Resource: g.configs.Get(s), Held: s.hosts}
	for _, h := range s.hosts.Items() {
		out.Report(h.problem)
	}
	return out
}

// maxDirectResponse is the largest body of a direct response, in bytes.
// Source: Istio allows 1 MiB, where Envoy's default is 4 KiB.
const maxDirectResponse = 1 << 20

// buildRouteConfig puts encoded virtual hosts together: encoded messages that follow one another are
// one message that has the fields of all. Clusters are not validated: a route may precede its cluster.
func buildRouteConfig(s routeConfigSpec) *resource.Resource {
	hosts := s.hosts.Items()
	if s.unknown != "" {
		hosts = append(slices.Clone(hosts), unknownHosts(s.unknown, s.uncounted))
	}
	return resource.New(resource.RouteType, s.name, clusterRefs(hosts), func() []byte {
		b := resource.Encode(&routev3.RouteConfiguration{
			Name: s.name, ValidateClusters: wrapperspb.Bool(false),
			MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(maxDirectResponse), IgnorePortInHostMatching: !s.withPorts,
		})
		size := len(b)
		for _, h := range hosts {
			size += len(h.body)
		}
		b = slices.Grow(b, size-len(b))
		for _, h := range hosts {
			b = append(b, h.body...)
		}
		return b
	})
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
