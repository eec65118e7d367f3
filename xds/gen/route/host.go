package route

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

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

// service plans the virtual host of one service: the routes of the VirtualService that speaks for
// it, or else all to the service.
func (p *portPlanner) service(i int) *virtualHost {
	h := p.hosts.items[i]
	domains := p.domainsOf(i)
	if domains == nil {
		return nil
	}
	if info := p.governing(h); info != nil {
		return p.host(h.name, domains, info)
	}
	return p.generator.hosts.Get(virtualHostSpec{name: h.name, domains: domains, service: h.service, port: p.in.port,
		hash: p.hash(h.service.Host, "", p.in.port), retry: p.retry, uncounted: p.uncounted()})
}

// governing is the VirtualService that speaks for a service; nil: none.
func (p *portPlanner) governing(h serviceHost) *routeInfo {
	for info := range p.routes.candidates(h.service.Host) {
		if applies(info.vs.Spec, p.in.port, push.MeshGateway, p.sources) {
			return info
		}
	}
	return nil
}

// host plans a virtual host with the routes of a VirtualService.
func (p *portPlanner) host(name string, domains *intern.List[string], info *routeInfo) *virtualHost {
	rules := p.rules(info, p.in.port, push.MeshGateway, false)
	return p.generator.hosts.Get(virtualHostSpec{name: name, domains: domains, uncounted: p.uncounted(),
		rules: p.generator.parts.Of([]*builtRoutes{rules})})
}

// domainsOf are the domains that are left to service i; nil: none.
func (p *portPlanner) domainsOf(i int) *intern.List[string] {
	h := p.hosts.items[i]
	if p.taken == nil && p.lost[i] == nil {
		return h.domains
	}
	var left []string
	for _, d := range h.domains.Items() {
		if slices.Contains(p.lost[i], d) || p.taken[d] {
			continue
		}
		left = append(left, d)
	}
	p.take(left)
	return p.generator.names.Of(left)
}

func (p *portPlanner) take(domains []string) {
	if p.taken == nil {
		return
	}
	for _, d := range domains {
		p.taken[d] = true
	}
}

// foreign plans the virtual hosts of names that VirtualServices give and that no service has. A
// VirtualService brings such a name to a port where it governs a service too, or where a wildcard
// service covers it, and else to port 80. Source: Istio; the part about wildcard services goes beyond
// it.
func (p *portPlanner) foreign() []*virtualHost {
	if p.in.only != nil {
		return nil
	}
	var out []*virtualHost
	seen := map[string]bool{}
	for _, info := range p.routes.foreign {
		for _, host := range info.vs.Spec.Hosts {
			if seen[host] || !p.servesForeign(info, host) || !applies(info.vs.Spec, p.in.port, push.MeshGateway,
				p.sources) {
				continue
			}
			seen[host] = true
			if domains := p.claim(host); domains != nil {
				out = append(out, p.host(hostPort(host, p.in.port), domains, info))
			}
		}
	}
	return out
}

// servesForeign says whether host is a name that no service has and that belongs on the port.
func (p *portPlanner) servesForeign(info *routeInfo, host string) bool {
	if p.routes.services[host] {
		return false
	}
	if strings.HasPrefix(host, "*") && p.coversService(host) {
		return false // its services have virtual hosts of their own
	}
	if p.governsService(info) {
		return true
	}
	return p.in.port == foreignPort || slices.ContainsFunc(p.hosts.items, func(h serviceHost) bool {
		return strings.HasPrefix(h.service.Host, "*") && layout.HostCovers(h.service.Host, host)
	})
}

// has says whether a service of the port has exactly that host.
func (p *portPlanner) has(host string) bool {
	_, ok := p.hosts.index[host]
	return ok
}

func (p *portPlanner) coversService(pattern string) bool {
	return slices.ContainsFunc(p.hosts.items, func(h serviceHost) bool {
		return layout.HostCovers(pattern, h.service.Host)
	})
}

// governsService says whether a VirtualService names or covers a service of the port.
func (p *portPlanner) governsService(info *routeInfo) bool {
	return slices.ContainsFunc(info.vs.Spec.Hosts, func(h string) bool {
		return p.has(h) || strings.HasPrefix(h, "*") && p.coversService(h)
	})
}

// claim takes the domains of a foreign host, also from a service that has one as its short name or
// address. Nil: all are taken.
func (p *portPlanner) claim(host string) *intern.List[string] {
	var domains []string
	foreign := servicePort{service: &registry.Service{}, port: registry.Port{Number: p.in.port}}
	for _, d := range p.in.written(foreign, host) {
		if p.taken[d] {
			continue
		}
		if i, ok := p.hosts.owner[d]; ok {
			if p.lost == nil {
				p.lost = map[int][]string{}
			}
			p.lost[i] = append(p.lost[i], d)
		}
		domains = append(domains, d)
	}
	p.take(domains)
	return p.generator.names.Of(domains)
}
