package listener

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// gatewayListenersIn is all that the listeners of a router depend on.
type gatewayListenersIn struct {
	generator *Generator
	layout    *layout.Gateway
	base      *listenerBase
	// routes are the VirtualServices of each server that route connections.
	routes       *intern.List[*intern.List[*push.VirtualService]]
	destinations *push.Destinations
}

// Layer chooses the listeners of a router. A port on which no route leads anywhere is left
// out, since Envoy refuses a listener without filter chains.
func (in gatewayListenersIn) Layer() *envoy.Layer {
	lists := &in.generator.chains
	p := &gatewayPlanner{in: in, lists: lists, tcp: tcpPlanner{destinations: in.destinations,
		weighted: &lists.weighted}}
	out := make([]listenerSpec, 0, len(in.layout.Ports))
	for i := range in.layout.Ports {
		if s := p.listener(&in.layout.Ports[i]); s.chains.Len() > 0 {
			out = append(out, s)
		}
	}
	return in.generator.build(out, nil)
}

// gatewayPlanner plans the listeners of one router. Used by one call of Layer.
type gatewayPlanner struct {
	in    gatewayListenersIn
	lists *chainLists
	tcp   tcpPlanner
}

func (p *gatewayPlanner) listener(port *layout.GatewayPort) listenerSpec {
	s := listenerSpec{base: p.in.base, name: port.At.Name(), at: port.At, side: sideGateway, bound: true}
	if port.At.Wildcard() {
		s.also = p.in.base.families.Second()
	}
	set := newChainSet(p.lists)
	for _, use := range port.Servers {
		server := p.in.layout.Servers.Items()[use.Index]
		switch use.Mode {
		case layout.GatewayHTTP:
			// servers of one port share the chain; a second one adds nothing
			set.add(chainSpec{http: p.http(s.name, use, server)}, nil, nil)
		case layout.GatewayHTTPS:
			set.add(chainSpec{tls: server.Server.Tls, http: p.http(s.name, use, server)}, nil, use.Sni)
		case layout.GatewayTLS:
			p.addTCP(set, use, server, server.Server.Tls)
		case layout.GatewayTCP:
			p.addTCP(set, use, server, nil)
		case layout.GatewayPassthrough:
			p.addPassthrough(set, use, server)
		case layout.GatewayForward:
			p.addForwards(set, server)
		}
	}
	s.chains = set.list()
	return s
}

func (p *gatewayPlanner) http(listener string, use layout.GatewayUse, s layout.GatewayServer) httpSpec {
	return httpSpec{
		statPrefix: "outbound_" + listener + ";",
		route:      use.Route,
		grpcWeb:    envoy.ParseProtocol(s.Server.GetPort().GetProtocol()) == registry.GRPCWeb,
	}
}

// addTCP adds the chain of a server that forwards connections: the first TCP route that matches the
// server's port takes all. Source: Istio.
func (p *gatewayPlanner) addTCP(set *chainSet, use layout.GatewayUse, s layout.GatewayServer, tls *networking.ServerTLSSettings) {
	for _, vs := range p.in.routes.Items()[use.Index].Items() {
		if !serverTakes(s, vs) {
			continue
		}
		for _, r := range vs.Spec.Tcp {
			if !matchesServer(s, r.Match) {
				continue
			}
			if spec, ok := p.tcp.routed(vs, r.Route, s.Server.GetPort().GetNumber()); ok {
				set.add(chainSpec{tls: tls, tcp: spec}, nil, use.Sni)
				return
			}
		}
	}
}

// addPassthrough adds a chain for each TLS route that matches, by the names that both the route and
// the server have.
func (p *gatewayPlanner) addPassthrough(set *chainSet, use layout.GatewayUse, s layout.GatewayServer) {
	for _, vs := range p.in.routes.Items()[use.Index].Items() {
		hosts := layout.ServerHosts(s, vs.Object.Namespace)
		if !layout.OverlapAny(hosts, vs.Spec.Hosts) {
			continue
		}
		for _, r := range vs.Spec.Tls {
			for _, m := range r.Match {
				sni := layout.Narrow(m.SniHosts, hosts)
				if len(sni) == 0 || !matchesGateway(s, m) {
					continue
				}
				if spec, ok := p.tcp.routed(vs, r.Route, s.Server.GetPort().GetNumber()); ok {
					set.add(chainSpec{tcp: spec}, parseSubnets(m.DestinationSubnets), sni)
				}
			}
		}
	}
}

// addForwards adds a chain for each cluster of the services that a server forwards to. Only clients
// that speak the mesh's mutual TLS are taken. No policy of the router applies: it does not see who
// connects, and the workload does. Source: Istio, builtAutoPassthroughFilterChains.
func (p *gatewayPlanner) addForwards(set *chainSet, s layout.GatewayServer) {
	for _, d := range p.in.destinations.Items() {
		if !d.Forwarded || !push.Forwards(s.Gateway, s.Server, d.Service) {
			continue
		}
		destination.EachCluster(d, func(port uint32, subset *networking.Subset, forwarded bool) {
			if forwarded {
				spec := p.tcp.forward(d, port, subset.GetName())
				// Envoy compares names with what clients ask for in lower case
				set.add(chainSpec{match: chainMatch{alpn: envoy.ALPNMeshAny}, tcp: spec, forwarded: true}, nil,
					[]string{strings.ToLower(spec.cluster)})
			}
		})
	}
}

// matchesServer says whether one of the matches holds for a server; none at all holds for every
// server.
func matchesServer(s layout.GatewayServer, matches []*networking.L4MatchAttributes) bool {
	return len(matches) == 0 || slices.ContainsFunc(matches,
		func(m *networking.L4MatchAttributes) bool { return matchesGateway(s, m) })
}

// matchesGateway says whether the static part of a match holds for a server. Conditions on the
// source are for sidecars. Source: istio.io, L4MatchAttributes.
func matchesGateway(s layout.GatewayServer, m connectionMatch) bool {
	return matches(m, s.Server.GetPort().GetNumber(), s.Gateway.Namespace+"/"+s.Gateway.Name)
}

// serverTakes says whether a host of vs fits a host of the server.
func serverTakes(s layout.GatewayServer, vs *push.VirtualService) bool {
	return layout.OverlapAny(layout.ServerHosts(s, vs.Object.Namespace), vs.Spec.Hosts)
}
