package gen

import (
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// outboundListenersIn is all that the outbound listeners of a sidecar depend on.
type outboundListenersIn struct {
	layout *outboundLayout
	base   *listenerBase
	// routes are the VirtualServices of each egress group that route connections.
	routes *intern.List[*intern.List[*push.VirtualService]]
	// sources are the conditional matches of those that hold for the proxy.
	sources      *intern.List[any]
	destinations *push.Destinations
}

// routesConnections says that a VirtualService concerns listeners, not only route configurations.
func routesConnections(vs *push.VirtualService) bool { return len(vs.Spec.Tcp)+len(vs.Spec.Tls) > 0 }

// matchesConnections says that a conditional match is not one of HTTP.
func matchesConnections(match any) bool {
	_, http := match.(*networking.HTTPMatchRequest)
	return !http
}

// planOutbound chooses the outbound listeners.
func planOutbound(lists *chainLists, in outboundListenersIn) []listenerSpec {
	p := &outboundPlanner{
		in:     in,
		lists:  lists,
		tcp:    tcpPlanner{destinations: in.destinations, weighted: &lists.weighted},
		routed: make([]map[string][]*push.VirtualService, in.routes.Len()),
	}
	out := make([]listenerSpec, 0, len(in.layout.ports)+1)
	for i := range in.layout.ports {
		out = append(out, p.listener(&in.layout.ports[i]))
	}
	if in.base.interception != push.None {
		out = append(out, p.virtual())
	}
	return out
}

// outboundPlanner plans the listeners of one proxy. Used by one call of planOutbound.
type outboundPlanner struct {
	in    outboundListenersIn
	lists *chainLists
	tcp   tcpPlanner
	// routed remembers routesOf, by group and host.
	routed []map[string][]*push.VirtualService
}

// virtual is the listener to which outbound connections are redirected. It hands them to the
// listener of their destination; what has none goes where the policy says. A connection to its own
// port would go round for ever and is closed.
func (p *outboundPlanner) virtual() listenerSpec {
	b := p.in.base
	set := newChainSet(p.lists)
	set.specs = []chainSpec{
		{name: "virtualOutbound-blackhole", match: chainMatch{port: b.outboundPort},
			tcp: tcpSpec{cluster: blackHole, statPrefix: blackHole}},
		{name: "virtualOutbound-catchall-tcp", tcp: tcpSpec{cluster: b.catchAll, statPrefix: b.catchAll}},
	}
	at, also := b.families.wildcard(), b.families.second()
	if b.interception.IsTProxy() {
		at = onlyV4.loopback()
	}
	if b.interception == push.TProxy {
		also = netip.MustParseAddr(tproxyOutbound6)
	}
	return listenerSpec{
		base:    b,
		name:    "virtualOutbound",
		at:      address{ip: at, port: b.outboundPort},
		also:    also,
		side:    sideOutbound,
		bound:   true,
		capture: captureHandOff,
		chains:  set.list(),
	}
}

// listener plans one port.
func (p *outboundPlanner) listener(port *outboundPort) listenerSpec {
	s := listenerSpec{base: p.in.base, name: port.at.name(), at: port.at, side: sideOutbound, bound: port.bound,
		fallback: !port.bound}
	if port.at.wildcard() {
		s.also = p.in.base.families.second()
	}
	set := newChainSet(p.lists)
	if port.route != "" {
		p.addHTTP(set, port, s.name)
	}
	for _, t := range port.tcp {
		if t.port.Protocol.IsTLS() {
			p.addTLS(set, port, t)
		} else {
			p.addTCP(set, port, t)
		}
	}
	s.chains = set.list()
	return s
}

// addHTTP adds the chain of requests. On a wildcard address other protocols may arrive too, so it
// takes only what is recognised as HTTP; also within the prefixes of sniffed services, since Envoy
// chooses by address before it looks at the protocol.
func (p *outboundPlanner) addHTTP(set *chainSet, port *outboundPort, name string) {
	detect := len(port.tcp) > 0 || !port.bound && port.at.wildcard()
	c := chainSpec{
		match: chainMatch{plainHTTP: detect},
		http:  httpSpec{statPrefix: "outbound_" + name + ";", route: port.route, absoluteURLs: port.proxy},
	}
	set.add(c, nil, nil)
	var subnets []netip.Prefix
	for _, t := range port.tcp {
		if t.port.Protocol == registry.Unknown && t.subnet.IsValid() {
			subnets = append(subnets, t.subnet)
		}
	}
	if len(subnets) > 0 {
		set.add(c, subnets, nil)
	}
}

// addTCP adds the chains of connections to a service.
//
// Source: Istio: routes are tried in order; one that names no destination subnet takes the rest,
// else the service itself does.
func (p *outboundPlanner) addTCP(set *chainSet, port *outboundPort, t outboundTarget) {
	for _, vs := range p.routesOf(port.group, t.service.Host) {
		for _, r := range vs.Spec.Tcp {
			subnets, matches := p.tcpSubnets(r.Match, port.at.port)
			if !matches {
				continue
			}
			spec, ok := p.tcp.routed(vs, r.Route, port.at.port)
			if !ok {
				continue
			}
			if len(subnets) > 0 {
				set.add(chainSpec{tcp: spec}, subnets, nil)
				continue
			}
			set.add(chainSpec{tcp: spec}, t.subnets(), nil)
			return
		}
	}
	set.add(chainSpec{tcp: p.tcp.direct(t.service.Host, t.port.Number)}, t.subnets(), nil)
}

// tcpSubnets are the destination subnets of the matches that hold; none when one of them holds for
// every destination. The second result says whether any holds.
func (p *outboundPlanner) tcpSubnets(matches []*networking.L4MatchAttributes, port uint32) ([]netip.Prefix, bool) {
	if len(matches) == 0 {
		return nil, true
	}
	var subnets []netip.Prefix
	for _, m := range matches {
		if !p.holds(m, port) {
			continue
		}
		if len(m.DestinationSubnets) == 0 || port == 0 {
			return nil, true
		}
		subnets = append(subnets, parseSubnets(m.DestinationSubnets)...)
	}
	return subnets, len(subnets) > 0
}

// addTLS adds the chains of TLS connections to a service, by SNI.
//
// Source: Istio: without a route that matches, the service takes every connection to its own
// address; on a shared address only those that name it.
func (p *outboundPlanner) addTLS(set *chainSet, port *outboundPort, t outboundTarget) {
	routed := false
	for _, vs := range p.routesOf(port.group, t.service.Host) {
		for _, r := range vs.Spec.Tls {
			for _, m := range r.Match {
				if !p.holds(m, port.at.port) {
					continue
				}
				spec, ok := p.tcp.routed(vs, r.Route, port.at.port)
				if !ok {
					continue
				}
				subnets := t.subnets()
				if len(m.DestinationSubnets) > 0 && port.at.port > 0 {
					subnets = parseSubnets(m.DestinationSubnets)
				}
				set.add(chainSpec{tcp: spec}, subnets, m.SniHosts)
				routed = true
			}
		}
	}
	if routed {
		return
	}
	var sni []string
	if port.at.wildcard() || len(port.tcp) > 1 {
		sni = []string{t.service.Host}
	}
	set.add(chainSpec{tcp: p.tcp.direct(t.service.Host, t.port.Number)}, t.subnets(), sni)
}

// connectionMatch is what the matches of TCP and TLS routes have in common.
type connectionMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// holds says whether the static part of a match holds for the proxy and the listener's port.
func (p *outboundPlanner) holds(m connectionMatch, port uint32) bool {
	if n := m.GetPort(); n != 0 && n != port {
		return false
	}
	if g := m.GetGateways(); len(g) > 0 && !slices.Contains(g, sidecarGateway) {
		return false
	}
	if len(m.GetSourceLabels()) == 0 && m.GetSourceNamespace() == "" {
		return true
	}
	return slices.Contains(p.in.sources.Items(), any(m))
}

// routesOf lists the VirtualServices of a group that route connections to host, in order of
// precedence.
func (p *outboundPlanner) routesOf(group int, host string) []*push.VirtualService {
	if group < 0 || group >= p.in.routes.Len() {
		return nil
	}
	all := p.in.routes.Items()[group].Items()
	if len(all) == 0 {
		return nil
	}
	if found, ok := p.routed[group][host]; ok {
		return found
	}
	var out []*push.VirtualService
	name := strings.ToLower(host)
	for _, vs := range all {
		if slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return hostsOverlap(strings.ToLower(h), name) }) {
			out = append(out, vs)
		}
	}
	if p.routed[group] == nil {
		p.routed[group] = map[string][]*push.VirtualService{}
	}
	p.routed[group][host] = out
	return out
}
