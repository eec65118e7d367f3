package listener

import (
	"net/netip"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// outboundListenersIn is all that the outbound listeners of a sidecar depend on.
type outboundListenersIn struct {
	generator *Generator
	layout    *layout.Outbound
	base      *listenerBase
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

// Layer chooses the outbound listeners.
func (in outboundListenersIn) Layer() *envoy.Layer {
	lists := &in.generator.chains
	p := &outboundPlanner{
		in:     in,
		lists:  lists,
		tcp:    tcpPlanner{destinations: in.destinations, weighted: &lists.weighted},
		routed: make([]map[string][]*push.VirtualService, in.routes.Len()),
	}
	out := make([]listenerSpec, 0, len(in.layout.Ports)+1)
	for i := range in.layout.Ports {
		out = append(out, p.listener(&in.layout.Ports[i]))
	}
	if in.base.interception != push.None {
		out = append(out, p.virtual())
	}
	return in.generator.build(out, nil)
}

// outboundPlanner plans the listeners of one proxy. Used by one call of Layer.
type outboundPlanner struct {
	in    outboundListenersIn
	lists *chainLists
	tcp   tcpPlanner
	// routed remembers routesOf, by group and host.
	routed []map[string][]*push.VirtualService
}

// virtual is the listener to which outbound connections are redirected. It hands them to the
// listener of their destination; what has none goes where the policy says. A connection to its own
// port would lead back to it without end, and is closed.
func (p *outboundPlanner) virtual() listenerSpec {
	b := p.in.base
	set := newChainSet(p.lists)
	set.specs = []chainSpec{
		{name: "virtualOutbound-blackhole", match: chainMatch{port: envoy.OutboundListenPort(b.mesh)},
			tcp: tcpSpec{cluster: envoy.BlackHole, statPrefix: envoy.BlackHole}},
		{name: "virtualOutbound-catchall-tcp", tcp: tcpSpec{cluster: b.catchAll, statPrefix: b.catchAll}},
	}
	var undetected *intern.List[uint32]
	if b.resolvesUnknown {
		set.specs = append(set.specs, chainSpec{name: "virtualOutbound-catchall-tcp-http", match: chainMatch{plainHTTP: true},
			http: httpSpec{statPrefix: "outbound_virtualOutbound_allow_any_dynamic_dns;", route: envoy.UnknownHostsRoute}})
		undetected = p.handedOn()
	}
	at, also := b.families.Wildcard(), b.families.Second()
	if b.interception.IsTProxy() {
		at = envoy.OnlyV4.Loopback()
	}
	if b.interception == push.TProxy {
		also = netip.MustParseAddr(envoy.TproxyOutbound6)
	}
	return listenerSpec{
		base:    b,
		name:    "virtualOutbound",
		at:      envoy.Address{IP: at, Port: envoy.OutboundListenPort(b.mesh)},
		also:    also,
		side:    sideOutbound,
		bound:   true,
		capture: captureHandOff,
		chains:  set.list(),

		undetected: undetected,
	}
}

// handedOn are ports whose connections all go to another listener, and those of services whose server
// may speak first: it would be kept waiting.
func (p *outboundPlanner) handedOn() *intern.List[uint32] {
	var out []uint32
	for i := range p.in.layout.Ports {
		if port := &p.in.layout.Ports[i]; !port.Bound && (port.At.Wildcard() || port.Route == "") {
			out = append(out, port.At.Port)
		}
	}
	slices.Sort(out)
	return p.lists.ports.Of(slices.Compact(out))
}

// listener plans one port.
func (p *outboundPlanner) listener(port *layout.OutboundPort) listenerSpec {
	s := listenerSpec{base: p.in.base, name: port.At.Name(), at: port.At, side: sideOutbound, bound: port.Bound,
		fallback: !port.Bound}
	if port.At.Wildcard() {
		s.also = p.in.base.families.Second()
	}
	set := newChainSet(p.lists)
	if port.Route != "" {
		p.addHTTP(set, port, s.name)
	}
	for _, t := range port.Tcp {
		if t.Port.Protocol.IsTLS() {
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
func (p *outboundPlanner) addHTTP(set *chainSet, port *layout.OutboundPort, name string) {
	detect := len(port.Tcp) > 0 || !port.Bound && port.At.Wildcard()
	c := chainSpec{
		match: chainMatch{plainHTTP: detect},
		http:  httpSpec{statPrefix: "outbound_" + name + ";", route: port.Route, absoluteURLs: port.Proxy},
	}
	set.add(c, nil, nil)
	var subnets []netip.Prefix
	for _, t := range port.Tcp {
		if t.Port.Protocol == registry.Unknown && t.Subnet.IsValid() {
			subnets = append(subnets, t.Subnet)
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
func (p *outboundPlanner) addTCP(set *chainSet, port *layout.OutboundPort, t layout.OutboundTarget) {
	for _, vs := range p.routesOf(port.Group, t.Service.Host) {
		for _, r := range vs.Spec.Tcp {
			subnets, matches := p.tcpSubnets(r.Match, port.At.Port)
			if !matches {
				continue
			}
			spec, ok := p.tcp.routed(vs, r.Route, port.At.Port)
			if !ok {
				continue
			}
			if len(subnets) > 0 {
				set.add(chainSpec{tcp: spec}, subnets, nil)
				continue
			}
			set.add(chainSpec{tcp: spec}, t.Subnets(), nil)
			return
		}
	}
	set.add(chainSpec{tcp: p.tcp.direct(t.Service.Host, t.Port.Number)}, t.Subnets(), nil)
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
func (p *outboundPlanner) addTLS(set *chainSet, port *layout.OutboundPort, t layout.OutboundTarget) {
	routed := false
	for _, vs := range p.routesOf(port.Group, t.Service.Host) {
		for _, r := range vs.Spec.Tls {
			for _, m := range r.Match {
				if !p.holds(m, port.At.Port) {
					continue
				}
				spec, ok := p.tcp.routed(vs, r.Route, port.At.Port)
				if !ok {
					continue
				}
				subnets := t.Subnets()
				if len(m.DestinationSubnets) > 0 && port.At.Port > 0 {
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
	if port.At.Wildcard() || len(port.Tcp) > 1 {
		sni = []string{t.Service.Host}
	}
	set.add(chainSpec{tcp: p.tcp.direct(t.Service.Host, t.Port.Number)}, t.Subnets(), sni)
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
	ofSource := len(m.GetSourceLabels()) > 0 || m.GetSourceNamespace() != ""
	return matches(m, port, push.MeshGateway) && (!ofSource || slices.Contains(p.in.sources.Items(), any(m)))
}

// matches says whether a match is for a port and a gateway.
func matches(m connectionMatch, port uint32, gateway string) bool {
	n, gateways := m.GetPort(), m.GetGateways()
	return (n == 0 || n == port) && (len(gateways) == 0 || slices.Contains(gateways, gateway))
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
	for _, vs := range all {
		if slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return push.HostsOverlap(h, host) }) {
			out = append(out, vs)
		}
	}
	if p.routed[group] == nil {
		p.routed[group] = map[string][]*push.VirtualService{}
	}
	p.routed[group][host] = out
	return out
}
