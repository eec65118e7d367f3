package route

import (
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// gatewayRoutesIn is everything that the route configurations of a router depend on.
type gatewayRoutesIn struct {
	rulePlanner
	layout  *layout.Gateway
	servers *intern.List[push.GatewayServer]
}

// Layer makes the route configurations of a router.
func (in gatewayRoutesIn) Layer() *envoy.Layer {
	parts := make([]*envoy.Part, 0, len(in.layout.Routes))
	for _, r := range in.layout.Routes {
		p := gatewayHostPlanner{gatewayRoutesIn: in, hosts: map[string]*gatewayHost{}}
		p.port = in.servers.Items()[r.Servers[0]].Server.GetPort().GetNumber()
		for _, i := range r.Servers {
			p.server(in.servers.Items()[i])
		}
		hosts := in.generator.lists.Of(p.virtualHosts())
		parts = append(parts, in.generator.config(routeConfigSpec{name: r.Name, hosts: hosts}))
	}
	return envoy.LayerOf(parts)
}

// gatewayHostPlanner collects the virtual hosts of one route configuration.
type gatewayHostPlanner struct {
	gatewayRoutesIn
	// hosts is by name.
	hosts map[string]*gatewayHost
	// port is the first server's, after which virtual hosts are called. Source: Istio.
	port uint32
}

// gatewayHost is one virtual host in the making.
type gatewayHost struct {
	routes     []*builtRoutes
	requireTLS bool
}

// server adds the hosts of one server: those that its Gateway and a VirtualService have in common,
// with the routes of all such VirtualServices, in order of precedence.
func (p *gatewayHostPlanner) server(g push.GatewayServer) {
	port := g.Server.GetPort().GetNumber()
	gateway := g.Gateway.Namespace + "/" + g.Gateway.Name
	https := envoy.ParseProtocol(g.Server.GetPort().GetProtocol()) == registry.HTTPS
	redirect := g.Server.GetTls().GetHttpsRedirect()
	for _, vs := range g.Routes.Items() {
		info := newRouteInfo(vs)
		hosts := commonHosts(g, info)
		if len(hosts) == 0 || !applies(vs.Spec, port, gateway, p.sources) {
			continue
		}
		routes := p.rules(info, port, gateway, https)
		for _, h := range hosts {
			host := p.host(h)
			if !slices.Contains(host.routes, routes) {
				host.routes = append(host.routes, routes)
			}
			host.requireTLS = host.requireTLS || redirect
		}
	}
	if redirect {
		for _, h := range layout.SniHosts(g.Server.Hosts) {
			p.host(h).requireTLS = true
		}
	}
}

func (p *gatewayHostPlanner) host(name string) *gatewayHost {
	h := p.hosts[name]
	if h == nil {
		h = &gatewayHost{}
		p.hosts[name] = h
	}
	return h
}

// virtualHosts makes the hosts. Requests for a host that is not among them are answered with 404.
// Source: Istio.
func (p *gatewayHostPlanner) virtualHosts() []*virtualHost {
	g := p.generator
	if len(p.hosts) == 0 {
		return []*virtualHost{g.hosts.Get(virtualHostSpec{name: hostPort("blackhole", p.port),
			domains: g.names.Of([]string{envoy.AnyDomain})})}
	}
	out := make([]*virtualHost, 0, len(p.hosts))
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[name]
		out = append(out, g.hosts.Get(virtualHostSpec{name: hostPort(name, p.port),
			domains: g.names.Of([]string{authority(name)}), rules: g.parts.Of(h.routes), requireTLS: h.requireTLS,
			uncounted: p.uncounted()}))
	}
	return out
}

// commonHosts are the hosts that a server offers to the namespace of a VirtualService and that the
// VirtualService names: of two that overlap, the narrower one.
func commonHosts(g push.GatewayServer, info *routeInfo) []string {
	return layout.Narrow(info.vs.Spec.Hosts, layout.ServerHosts(layout.GatewayServer{Gateway: g.Gateway, Server: g.Server},
		info.vs.Object.Namespace))
}
