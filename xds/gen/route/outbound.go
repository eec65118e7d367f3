package route

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// outboundRoutesIn is everything that the route configurations of a sidecar depend on.
type outboundRoutesIn struct {
	rulePlanner
	layout *layout.Outbound
	egress *intern.List[*push.Egress]
	// unknown is the cluster of requests for hosts that nobody declared, unknownAtBound where the proxy
	// opens the port.
	unknown, unknownAtBound string
	// domain is the suffix of the mesh's short names.
	domain string
	// namespace is where clients use the bare names of services; empty: nowhere.
	namespace string
}

// Layer makes the route configurations of a sidecar.
func (in outboundRoutesIn) Layer() *envoy.Layer {
	p := outboundRoutePlanner{outboundRoutesIn: in, routes: map[int]*routeIndex{}}
	parts := make([]*envoy.Part, len(in.layout.Routes))
	for i, r := range in.layout.Routes {
		parts[i] = p.config(r)
	}
	layer := envoy.LayerOf(parts)
	layer.Held = append(layer.Held, p.held...)
	return layer
}

// outboundRoutePlanner plans one layer.
type outboundRoutePlanner struct {
	outboundRoutesIn
	routes map[int]*routeIndex // by egress group
	held   []any               // the serviceHosts that it used
}

// config makes one route configuration.
func (p *outboundRoutePlanner) config(r layout.OutboundRoute) *envoy.Part {
	spec := routeConfigSpec{name: r.Name, withPorts: r.Port == 0, uncounted: p.uncounted()}
	var hosts []*virtualHost
	if r.Group >= 0 {
		hosts = p.groupHosts(r)
	}
	slices.SortFunc(hosts, func(a, b *virtualHost) int { return strings.Compare(a.name, b.name) })
	if !slices.ContainsFunc(hosts, func(h *virtualHost) bool { return h.all }) {
		spec.unknown = p.unknown
		if r.Bound {
			spec.unknown = p.unknownAtBound
		}
	}
	spec.hosts = p.generator.lists.Of(hosts)
	return p.generator.config(spec)
}

// groupHosts plans the virtual hosts of one egress group.
func (p *outboundRoutePlanner) groupHosts(r layout.OutboundRoute) []*virtualHost {
	e := p.egress.Items()[r.Group]
	if p.routes[r.Group] == nil {
		p.routes[r.Group] = newRouteIndex(e)
	}
	in := serviceHostsIn{services: e.Services, port: r.Port, domain: p.domain, namespace: p.namespace}
	if r.Host != "" {
		d, _ := p.destinations.Get(r.Host)
		in.services, in.only = nil, d.Service
	}
	if r.Port != 0 {
		return p.portHosts(in, p.routes[r.Group], nil)
	}
	return p.allPorts(in, p.routes[r.Group])
}

// portHosts plans the virtual hosts of one port. taken are domains of other ports; nil: there are none.
func (p *outboundRoutePlanner) portHosts(in serviceHostsIn, routes *routeIndex, taken map[string]bool) []*virtualHost {
	hosts := p.generator.services.Get(in)
	p.held = append(p.held, hosts)
	port := portPlanner{outboundRoutePlanner: p, in: in, routes: routes, hosts: hosts, taken: taken}
	return port.plan()
}

// allPorts plans the virtual hosts of every port, told apart by the port behind the name: what HTTP
// proxies and unix sockets serve.
func (p *outboundRoutePlanner) allPorts(in serviceHostsIn, routes *routeIndex) []*virtualHost {
	in.withPorts = true
	var numbers []uint32
	for _, s := range in.services.Items() {
		for _, port := range s.Ports {
			if routable(port.Protocol) {
				numbers = append(numbers, port.Number)
			}
		}
	}
	slices.Sort(numbers)
	if numbers = slices.Compact(numbers); !slices.Contains(numbers, foreignPort) {
		numbers = append(numbers, foreignPort)
	}
	var out []*virtualHost
	taken := map[string]bool{}
	for _, in.port = range numbers {
		out = append(out, p.portHosts(in, routes, taken)...)
	}
	return out
}
