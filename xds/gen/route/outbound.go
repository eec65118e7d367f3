package route

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// outboundRoutesIn is everything that the route configurations of a sidecar depend on.
type outboundRoutesIn struct {
	tables       *Generator
	layout       *layout.Outbound
	egress       *intern.List[*push.Egress]
	destinations *push.Destinations
	sources      *intern.List[any]
	retry        *retryDefaults
	unknown      unknownHosts
	// domain is the suffix of the mesh's short names.
	domain string
}

func outboundRoutesInOf(t *Generator, sc *push.Scope) outboundRoutesIn {
	return outboundRoutesIn{
		tables:       t,
		layout:       t.layouts.Outbound(sc),
		egress:       sc.Egress,
		destinations: sc.Destinations,
		sources:      sc.RouteSources,
		retry:        t.retries.Get(sc.Mesh.Config.GetDefaultHttpRetryPolicy()),
		unknown:      unknownHostsOf(sc),
		domain:       sc.Mesh.Domain,
	}
}

// planOutboundRoutes makes the route configurations of a sidecar.
func planOutboundRoutes(in outboundRoutesIn) *routeLayer {
	p := outboundRoutePlanner{in: in, rules: newRulePlanner(in.tables, in.destinations, in.sources, in.retry),
		out: &routeLayer{}}
	p.unknown = in.tables.unknown.Get(in.unknown)
	p.out.hold(in.layout)
	p.out.hold(p.rules.hashing)
	p.out.hold(in.retry)
	p.out.hold(p.unknown)
	items := make([]*resource.Resource, 0, len(in.layout.Routes))
	for _, r := range in.layout.Routes {
		items = append(items, p.config(r))
	}
	p.out.Layer = *resource.NewLayer(items)
	return p.out
}

// outboundRoutePlanner plans one layer.
type outboundRoutePlanner struct {
	in      outboundRoutesIn
	rules   *rulePlanner
	unknown *virtualHost
	out     *routeLayer
}

// config makes one route configuration.
func (p *outboundRoutePlanner) config(r layout.OutboundRoute) *resource.Resource {
	spec := routeConfigSpec{name: r.Name, withPorts: r.Port == 0}
	var hosts []*virtualHost
	if r.Group >= 0 {
		hosts = p.groupHosts(r)
	}
	slices.SortFunc(hosts, func(a, b *virtualHost) int { return strings.Compare(a.name, b.name) })
	if !slices.ContainsFunc(hosts, (*virtualHost).takesAll) {
		hosts = append(hosts, p.unknown)
	}
	spec.hosts = p.in.tables.lists.Of(hosts)
	p.out.hold(spec.hosts)
	return p.in.tables.configs.Get(spec)
}

// groupHosts plans the virtual hosts of one egress group.
func (p *outboundRoutePlanner) groupHosts(r layout.OutboundRoute) []*virtualHost {
	t, e := p.in.tables, p.in.egress.Items()[r.Group]
	index, routes := t.ports.Get(e.Services), t.indexes.Get(routeIndexIn{t, e.Routes})
	p.out.hold(index)
	p.out.hold(routes)
	in := serviceHostsIn{
		tables: t, index: index, port: r.Port, host: r.Host,
		domain: p.in.domain, retry: p.in.retry,
	}
	if r.Port != 0 {
		port := portPlanner{outboundRoutePlanner: p, in: in, routes: routes, hosts: p.serviceHosts(in)}
		return port.plan()
	}
	return p.allPorts(in, routes)
}

func (p *outboundRoutePlanner) serviceHosts(in serviceHostsIn) *serviceHosts {
	hosts := p.in.tables.hosts.Get(in)
	p.out.hold(hosts)
	return hosts
}

// allPorts plans the virtual hosts of every port, told apart by the port behind the name: what HTTP
// proxies and unix sockets serve.
func (p *outboundRoutePlanner) allPorts(in serviceHostsIn, routes *routeIndex) []*virtualHost {
	in.withPorts = true
	numbers := slices.Clone(in.index.numbers)
	if !slices.Contains(numbers, foreignPort) {
		numbers = append(numbers, foreignPort)
	}
	var out []*virtualHost
	taken := map[string]bool{}
	for _, n := range numbers {
		in.port = n
		port := portPlanner{outboundRoutePlanner: p, in: in, routes: routes, hosts: p.serviceHosts(in), taken: taken}
		out = append(out, port.plan()...)
	}
	return out
}
