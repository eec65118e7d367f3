package gen

import (
	"net/netip"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// gatewayListenersIn is all that the listeners of a router depend on.
type gatewayListenersIn struct {
	layout *gatewayLayout
	base   *listenerBase
	// servers are those of the layout, in its order.
	servers *intern.List[gatewayServer]
	// routes are the VirtualServices of each server that route connections.
	routes       *intern.List[*intern.List[*push.VirtualService]]
	destinations *push.Destinations
}

// planGateways chooses the listeners of a router. A port on which no route leads anywhere is left
// out, since Envoy refuses a listener without filter chains.
func planGateways(lists *chainLists, in gatewayListenersIn) []listenerSpec {
	p := &gatewayPlanner{in: in, lists: lists, tcp: tcpPlanner{destinations: in.destinations,
		weighted: &lists.weighted}}
	out := make([]listenerSpec, 0, len(in.layout.ports))
	for i := range in.layout.ports {
		if s := p.listener(&in.layout.ports[i]); s.chains.Len() > 0 {
			out = append(out, s)
		}
	}
	return out
}

// gatewayPlanner plans the listeners of one router. Used by one call of planGateways.
type gatewayPlanner struct {
	in    gatewayListenersIn
	lists *chainLists
	tcp   tcpPlanner
}

func (p *gatewayPlanner) listener(port *gatewayPort) listenerSpec {
	s := listenerSpec{base: p.in.base, name: port.at.name(), at: port.at, side: sideGateway, bound: true}
	if port.at.wildcard() {
		s.also = p.in.base.families.second()
	}
	if len(port.problems) > 0 {
		s.problems = port
	}
	set := newChainSet(p.lists)
	for _, use := range port.servers {
		server := p.in.servers.Items()[use.index]
		switch use.mode {
		case gatewayHTTP:
			// servers of one port share the chain; a second one adds nothing
			set.add(chainSpec{http: p.http(s.name, use, server)}, nil, nil)
		case gatewayHTTPS:
			set.add(chainSpec{tls: server.server.Tls, http: p.http(s.name, use, server)}, nil, use.sni)
		case gatewayTLS:
			p.addTCP(set, use, server, server.server.Tls)
		case gatewayTCP:
			p.addTCP(set, use, server, nil)
		case gatewayPassthrough:
			p.addPassthrough(set, use, server)
		}
	}
	s.chains = set.list()
	return s
}

func (p *gatewayPlanner) http(listener string, use gatewayUse, s gatewayServer) httpSpec {
	return httpSpec{
		statPrefix: "outbound_" + listener + ";",
		route:      use.route,
		grpcWeb:    parseProtocol(s.server.GetPort().GetProtocol()) == registry.GRPCWeb,
	}
}

// addTCP adds the chain of a server that forwards connections: the first TCP route that matches the
// server's port takes all. Source: Istio.
func (p *gatewayPlanner) addTCP(set *chainSet, use gatewayUse, s gatewayServer, tls *networking.ServerTLSSettings) {
	for _, vs := range p.in.routes.Items()[use.index].Items() {
		if !serverTakes(s, vs) {
			continue
		}
		for _, r := range vs.Spec.Tcp {
			if !matchesServer(s, r.Match) {
				continue
			}
			if spec, ok := p.tcp.routed(vs, r.Route, s.server.GetPort().GetNumber()); ok {
				set.add(chainSpec{tls: tls, tcp: spec}, nil, use.sni)
				return
			}
		}
	}
}

// addPassthrough adds a chain for each TLS route that matches, by the names that both the route and
// the server have.
func (p *gatewayPlanner) addPassthrough(set *chainSet, use gatewayUse, s gatewayServer) {
	for _, vs := range p.in.routes.Items()[use.index].Items() {
		hosts := serverHosts(s, vs.Object.Namespace)
		if !overlapAny(hosts, vs.Spec.Hosts) {
			continue
		}
		for _, r := range vs.Spec.Tls {
			for _, m := range r.Match {
				sni := narrow(m.SniHosts, hosts)
				if len(sni) == 0 || !matchesGateway(s, m) {
					continue
				}
				if spec, ok := p.tcp.routed(vs, r.Route, s.server.GetPort().GetNumber()); ok {
					set.add(chainSpec{tcp: spec}, gatewaySubnets(m), sni)
				}
			}
		}
	}
}

// gatewaySubnets are the addresses that clients must have connected to.
func gatewaySubnets(m *networking.TLSMatchAttributes) []netip.Prefix {
	return parseSubnets(m.DestinationSubnets)
}

// matchesServer says whether one of the matches holds for a server; none at all holds for every
// server.
func matchesServer(s gatewayServer, matches []*networking.L4MatchAttributes) bool {
	return len(matches) == 0 || slices.ContainsFunc(matches,
		func(m *networking.L4MatchAttributes) bool { return matchesGateway(s, m) })
}

// matchesGateway says whether the static part of a match holds for a server. Conditions on the
// source are for sidecars. Source: istio.io, L4MatchAttributes.
func matchesGateway(s gatewayServer, m connectionMatch) bool {
	if n := m.GetPort(); n != 0 && n != s.server.GetPort().GetNumber() {
		return false
	}
	g := m.GetGateways()
	return len(g) == 0 || slices.Contains(g, s.gateway.Namespace+"/"+s.gateway.Name)
}

// serverTakes says whether a host of vs fits a host of the server.
func serverTakes(s gatewayServer, vs *push.VirtualService) bool {
	return overlapAny(serverHosts(s, vs.Object.Namespace), vs.Spec.Hosts)
}
