package gen

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// sidecarGateway is what VirtualServices call all sidecars together.
const sidecarGateway = "mesh"

// outboundRoutesIn is everything that the route configurations of a sidecar depend on.
type outboundRoutesIn struct {
	tables       *routeTables
	layout       *outboundLayout
	egress       *intern.List[*push.Egress]
	destinations *push.Destinations
	sources      *intern.List[any]
	retry        *retryDefaults
	unknown      unknownHosts
	// namespace is the client's where it is known, domain the suffix of the mesh's short names.
	namespace, domain string
}

func outboundRoutesInOf(t *routeTables, sc *push.Scope) outboundRoutesIn {
	return outboundRoutesIn{
		tables:       t,
		layout:       t.layouts.outbounds.Get(outboundInOf(t.layouts.groups, sc)),
		egress:       sc.Egress,
		destinations: sc.Destinations,
		sources:      sc.RouteSources,
		retry:        t.retries.Get(sc.Mesh.Config.GetDefaultHttpRetryPolicy()),
		unknown:      unknownHostsOf(sc),
		namespace:    sc.Namespace,
		domain:       sc.Mesh.Domain,
	}
}

// planOutboundRoutes makes the route configurations of a sidecar.
func planOutboundRoutes(in outboundRoutesIn) *routeLayer {
	p := outboundRoutePlanner{in: in, rules: newRulePlanner(in.tables, in.destinations, in.sources, in.retry), out: &routeLayer{}}
	p.unknown = in.tables.unknown.Get(in.unknown)
	p.out.hold(in.layout)
	p.out.hold(p.rules.hashing)
	p.out.hold(in.retry)
	p.out.hold(p.unknown)
	items := make([]*resource.Resource, 0, len(in.layout.routes))
	for _, r := range in.layout.routes {
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
func (p *outboundRoutePlanner) config(r outboundRoute) *resource.Resource {
	spec := routeConfigSpec{name: r.name, withPorts: r.port == 0}
	var hosts []*virtualHost
	if r.group >= 0 {
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
func (p *outboundRoutePlanner) groupHosts(r outboundRoute) []*virtualHost {
	t, e := p.in.tables, p.in.egress.Items()[r.group]
	index, routes := t.ports.Get(e.Services), t.indexes.Get(routeIndexIn{t, e.Routes})
	p.out.hold(index)
	p.out.hold(routes)
	in := serviceHostsIn{
		tables: t, index: index, port: r.port, host: r.host,
		namespace: p.in.namespace, domain: p.in.domain, retry: p.in.retry,
	}
	if r.port != 0 {
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

// foreignPort is the port of hosts that VirtualServices name and no registry knows.
// Source: Istio serves such hosts on port 80 only.
const foreignPort = 80

// portPlanner plans the virtual hosts of one port of a group.
type portPlanner struct {
	*outboundRoutePlanner
	in     serviceHostsIn
	routes *routeIndex
	hosts  *serviceHosts
	// taken are domains of other ports of the same route configuration; nil: there are none.
	taken map[string]bool
	// lost are the domains of hosts.items, by index, that a VirtualService's host takes from them.
	lost map[int][]string
}

func (p *portPlanner) plan() []*virtualHost {
	out := p.foreign()
	for i := range p.hosts.items {
		if h := p.service(i); h != nil {
			out = append(out, h)
		}
	}
	return out
}

// service plans the virtual host of one service: the routes of the VirtualService that speaks for it,
// or else all to the service.
func (p *portPlanner) service(i int) *virtualHost {
	h, t := &p.hosts.items[i], p.in.tables
	domains := p.domainsOf(i)
	if domains == nil {
		return nil
	}
	info := p.governing(h)
	hash := p.rules.hashing.service(h.service.Host, h.port.Number)
	switch {
	case info != nil && domains == h.domains:
		g := t.governed.Get(governedIn{h, info, p.rules.destinations, p.rules.sources})
		p.out.hold(g)
		return g.host
	case info != nil:
		return p.host(h.name, domains, p.rules.routes(info, h.port.Number, sidecarGateway, false))
	case hash == nil && domains == h.domains:
		return t.plain.Get(h)
	default:
		return p.host(h.name, domains, t.defaults.Get(defaultRouteSpec{host: h.service.Host, port: h.port.Number, hash: hash, retry: p.in.retry}))
	}
}

// governing is the VirtualService that speaks for a service; nil: none.
func (p *portPlanner) governing(h *serviceHost) *routeInfo {
	for info := range p.routes.candidates(h.service.Host) {
		if applies(info.vs.Spec, h.port.Number, sidecarGateway, p.rules.sources) {
			return info
		}
	}
	return nil
}

// governedIn is what the virtual host of a service depends on that a VirtualService governs. It saves
// looking up the parts of every host when one route changed.
type governedIn struct {
	host         *serviceHost
	info         *routeInfo
	destinations *push.Destinations
	sources      *intern.List[any]
}

// governedHost is the virtual host that was found.
type governedHost struct{ host *virtualHost }

func planGoverned(in governedIn) *governedHost {
	t, port := in.host.in.tables, in.host.port.Number
	rules := newRulePlanner(t, in.destinations, in.sources, in.host.in.retry)
	routes := rules.routes(in.info, port, sidecarGateway, false)
	return &governedHost{t.virtual.Get(virtualHostSpec{name: in.host.name, domains: in.host.domains, first: routes})}
}

func (p *portPlanner) host(name string, domains *intern.List[string], routes *encodedRoutes) *virtualHost {
	return p.in.tables.virtual.Get(virtualHostSpec{name: name, domains: domains, first: routes})
}

// domainsOf are the domains that are left to service i; nil: none.
func (p *portPlanner) domainsOf(i int) *intern.List[string] {
	h := &p.hosts.items[i]
	if p.taken == nil && p.lost[i] == nil {
		return h.domains
	}
	var left []string
	for _, d := range h.domains.Items() {
		if slices.Contains(p.lost[i], strings.ToLower(d)) || p.taken[strings.ToLower(d)] {
			continue
		}
		left = append(left, d)
	}
	p.take(left)
	return p.in.tables.names.Of(left)
}

func (p *portPlanner) take(domains []string) {
	if p.taken == nil {
		return
	}
	for _, d := range domains {
		p.taken[strings.ToLower(d)] = true
	}
}

// foreign plans the virtual hosts of names that VirtualServices give and that no service of the port
// has. A VirtualService brings such a name to a port where it governs a service too, or where a
// wildcard service covers it, and else to port 80.
// Source: Istio; the part about wildcard services goes beyond it.
func (p *portPlanner) foreign() []*virtualHost {
	if p.in.host != "" {
		return nil
	}
	var out []*virtualHost
	seen := map[string]bool{}
	for _, info := range p.foreigners() {
		for _, host := range info.hosts {
			if seen[host] || !p.servesForeign(info, host) || !applies(info.vs.Spec, p.in.port, sidecarGateway, p.rules.sources) {
				continue
			}
			seen[host] = true
			if domains := p.claim(host); domains != nil {
				routes := p.rules.routes(info, p.in.port, sidecarGateway, false)
				out = append(out, p.host(hostPort(host, p.in.port), domains, routes))
			}
		}
	}
	return out
}

// foreigners lists the VirtualServices that may bring names of their own to the port, in order of precedence.
func (p *portPlanner) foreigners() []*routeInfo {
	if p.in.port == foreignPort {
		return p.routes.all
	}
	found := map[*routeInfo]bool{}
	for i := range p.hosts.items {
		host := strings.ToLower(p.hosts.items[i].service.Host)
		for info := range p.routes.candidates(host) {
			if len(info.hosts) > 1 {
				found[info] = true
			}
		}
		if strings.HasPrefix(host, "*") {
			for _, info := range p.routes.all {
				if slices.ContainsFunc(info.hosts, func(h string) bool { return hostCovers(host, h) }) {
					found[info] = true
				}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.routes.all), func(info *routeInfo) bool { return !found[info] })
}

// servesForeign says whether host is a name that no service of the port has and that belongs on it.
func (p *portPlanner) servesForeign(info *routeInfo, host string) bool {
	if p.has(host) {
		return false
	}
	if strings.HasPrefix(host, "*") && p.coversService(host) {
		return false // its services have virtual hosts of their own
	}
	if p.governsService(info) {
		return true
	}
	return p.in.port == foreignPort || slices.ContainsFunc(p.hosts.items, func(h serviceHost) bool {
		return strings.HasPrefix(h.service.Host, "*") && hostCovers(strings.ToLower(h.service.Host), host)
	})
}

// has says whether a service of the port has exactly that host, which is in lower case.
func (p *portPlanner) has(host string) bool {
	s := p.in.index.byHost[host]
	if s == nil {
		return false
	}
	port, ok := s.Port(p.in.port)
	return ok && routable(port.Protocol)
}

func (p *portPlanner) coversService(pattern string) bool {
	return slices.ContainsFunc(p.hosts.items, func(h serviceHost) bool { return hostCovers(pattern, strings.ToLower(h.service.Host)) })
}

// governsService says whether a VirtualService names or covers a service of the port.
func (p *portPlanner) governsService(info *routeInfo) bool {
	return slices.ContainsFunc(info.hosts, func(h string) bool {
		return p.has(h) || strings.HasPrefix(h, "*") && p.coversService(h)
	})
}

// claim takes the domains of a foreign host, also from a service that has one as its short name or
// address. Nil: all are taken.
func (p *portPlanner) claim(host string) *intern.List[string] {
	var domains []string
	foreign := servicePort{service: &registry.Service{}, port: registry.Port{Number: p.in.port}}
	for _, d := range p.in.written(foreign, host) {
		low := strings.ToLower(d)
		if p.taken[low] {
			continue
		}
		if i, ok := p.hosts.owner[low]; ok {
			if p.lost == nil {
				p.lost = map[int][]string{}
			}
			p.lost[i] = append(p.lost[i], low)
		}
		domains = append(domains, d)
	}
	p.take(domains)
	return p.in.tables.names.Of(domains)
}
