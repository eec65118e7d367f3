package gen

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// inboundListenersIn is all that the inbound listeners of a sidecar depend on.
type inboundListenersIn struct {
	base *listenerBase
	own  *push.Own
	// sidecar's ingress listeners, where it has any, stand instead of what own says.
	sidecar *push.SidecarConfig
	// modes are how the workload takes connections.
	modes push.PeerModes
	// bypassed is what is wrong with ports that have no listener.
	bypassed bypass
}

// inboundPort is one port that the workload serves.
type inboundPort struct {
	port     uint32
	protocol registry.Protocol
	// at names the chains, and is where a listener of its own is.
	at address
	// tls, when not nil, ends TLS of clients that are not of the mesh; protocol is what is inside.
	tls *networking.ServerTLSSettings
	// bound says that the port has a listener of its own.
	bound bool
}

// inboundRoute is the route configuration of one inbound port: everything goes to the workload.
type inboundRoute struct {
	cluster string
	port    uint32
}

// planInbound chooses the inbound listeners.
//
// Source: Istio. Redirected connections arrive at virtualInbound, which has filter chains for each
// port and lets through to the workload what is for no known port. Where nothing is redirected, the
// ports of a Sidecar's ingress listeners are opened, else those at which the application listens on
// a loopback address alone. At the others the application itself listens.
func planInbound(lists *chainLists, in inboundListenersIn) []listenerSpec {
	ports := in.ports()
	var out []listenerSpec
	virtual := newChainSet(lists)
	apart := in.tellsTLS(ports)
	virtual.specs = in.passthroughChains(apart, ports)
	for _, p := range ports {
		if !p.bound {
			virtual.specs = append(virtual.specs, in.chains(p, apart)...)
			continue
		}
		set := newChainSet(lists)
		set.specs = in.chains(p, false)
		out = append(out, listenerSpec{base: in.base, name: p.at.name(), at: p.at, side: sideInbound, bound: true,
			chains: set.list()})
	}
	if in.base.interception == push.None {
		if in.bypassed != (bypass{}) {
			out = append(out, listenerSpec{base: in.base, name: in.workload(), bypassed: in.bypassed})
		}
		return out
	}
	return append(out, listenerSpec{
		base:    in.base,
		name:    "virtualInbound",
		at:      address{ip: in.base.families.wildcard(), port: in.base.inboundPort},
		also:    in.base.families.second(),
		side:    sideInbound,
		bound:   true,
		capture: captureHere,
		chains:  virtual.list(),
	})
}

// tellsTLS says that virtualInbound has to tell TLS from plaintext, for some port.
func (in inboundListenersIn) tellsTLS(ports []inboundPort) bool {
	mutual := in.base.identity() && (in.modes.Default != push.PeerDisable || in.modes.Ports.Len() > 0)
	return mutual || slices.ContainsFunc(ports, func(p inboundPort) bool { return !p.bound && p.tls != nil })
}

// ports lists what the workload serves, by number, each once: of several services with one target
// port the oldest decides.
func (in inboundListenersIn) ports() []inboundPort {
	if in.sidecar != nil && len(in.sidecar.Spec.Ingress) > 0 {
		return in.ingressPorts()
	}
	services := slices.Clone(in.own.Inbound.Items())
	if in.base.interception == push.None {
		services = slices.DeleteFunc(services, func(s push.Inbound) bool { return s.State != registry.PortLoopback })
	}
	slices.SortStableFunc(services, func(a, b push.Inbound) int {
		return cmp.Or(cmp.Compare(a.TargetPort, b.TargetPort), a.Service.CompareAge(b.Service),
			a.Service.Key.Compare(b.Service.Key))
	})
	var out []inboundPort
	for _, s := range services {
		p := inboundPort{port: s.TargetPort, protocol: s.Port.Protocol,
			at: address{ip: in.base.families.wildcard(), port: s.TargetPort}}
		if in.base.interception == push.None {
			p.at.ip, p.bound = in.addresses()[0], true // there is one: the endpoint was found by it
		}
		if p.protocol == registry.UDP || in.reserved(p) || len(out) > 0 && out[len(out)-1].port == p.port {
			continue
		}
		out = append(out, p)
	}
	return out
}

// reserved says that a listener that every proxy has is at the port: a connection to it is not for
// the workload, and Envoy refuses two listeners of one address.
func (in inboundListenersIn) reserved(p inboundPort) bool {
	if !p.bound {
		return p.port == in.base.inboundPort
	}
	redirected := in.base.interception != push.None && (p.port == in.base.inboundPort || p.port == in.base.outboundPort)
	if p.at.wildcard() {
		return redirected || isBootstrapPort(p.port)
	}
	// redirected connections arrive at the workload's addresses, where the port would take them all
	return redirected && p.at.path == "" && (isLoopback(p.at.ip) || slices.Contains(in.addresses(), p.at.ip))
}

// ingressPorts are those of the Sidecar.
func (in inboundListenersIn) ingressPorts() []inboundPort {
	var out []inboundPort
	for _, l := range in.sidecar.Spec.Ingress {
		n := l.GetPort().GetNumber()
		p := inboundPort{port: n, protocol: insideTLS(l), tls: l.Tls,
			bound: bindsPort(in.base.interception, l.CaptureMode)}
		p.at = in.ingressAddress(l, p.bound)
		if p.protocol == registry.UDP || in.reserved(p) ||
			slices.ContainsFunc(out, func(o inboundPort) bool { return o.port == n }) {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b inboundPort) int { return cmp.Compare(a.port, b.port) })
	return out
}

// insideTLS is the protocol of an ingress listener, inside of TLS where it ends it.
func insideTLS(l *networking.IstioIngressListener) registry.Protocol {
	p := parseProtocol(l.GetPort().GetProtocol())
	switch {
	case l.Tls == nil:
		return p
	case p == registry.HTTPS:
		return registry.HTTP
	case p.IsHTTP():
		return p
	default:
		return registry.TCP
	}
}

// ingressAddress is where an ingress listener is: its bind address, else the proxy's own first one.
func (in inboundListenersIn) ingressAddress(l *networking.IstioIngressListener, bound bool) address {
	a := address{port: l.GetPort().GetNumber()}
	a.ip, a.path = parseBind(l.Bind)
	if !a.unspecified() {
		return a
	}
	a.ip = in.base.families.wildcard()
	if own := in.addresses(); bound && len(own) > 0 {
		a.ip = own[0]
	}
	return a
}

func (in inboundListenersIn) addresses() []netip.Addr {
	if in.own == nil {
		return nil
	}
	return in.own.Addresses.Items()
}

// chains are the filter chains of one port: of HTTP, of connections, or where the protocol is not
// known of both. apart says that the listener tells TLS from plaintext.
func (in inboundListenersIn) chains(p inboundPort, apart bool) []chainSpec {
	name := p.at.name()
	cluster := inboundCluster(p.port)
	var match chainMatch
	if !p.bound {
		match.port = p.port
	}
	return inboundChains{
		http: chainSpec{
			name:  name,
			match: match,
			http:  httpSpec{statPrefix: "inbound_" + name + ";", inbound: inboundRoute{cluster: cluster, port: p.port}},
		},
		tcp:      chainSpec{name: name, match: match, tcp: tcpSpec{cluster: cluster, statPrefix: cluster}},
		protocol: p.protocol,
		mode:     in.modes.At(p.port),
		own:      p.tls,
		identity: in.base.identity(),
		apart:    apart,
	}.list()
}

// passthroughChains take what is for none of ports, and close connections to the listener's own
// port, which would go round for ever. Ports that have a mode of their own have chains of their
// own. Source: Istio, which does so for port-level modes of PeerAuthentication.
func (in inboundListenersIn) passthroughChains(apart bool, ports []inboundPort) []chainSpec {
	own := in.base.inboundPort
	out := []chainSpec{{name: "virtualInbound-blackhole", match: chainMatch{port: own},
		tcp: tcpSpec{cluster: blackHole, statPrefix: blackHole}}}
	out = append(out, in.passthrough(0, in.modes.Default, apart)...)
	for _, m := range in.modes.Ports.Items() {
		if m.Port != own && !slices.ContainsFunc(ports, func(p inboundPort) bool {
			return !p.bound &&
				p.port == m.Port
		}) {
			out = append(out, in.passthrough(m.Port, m.Mode, apart)...)
		}
	}
	return out
}

// passthrough are the chains that take what is for a port that nobody declared; 0: for all of them.
func (in inboundListenersIn) passthrough(port uint32, mode push.PeerMode, apart bool) []chainSpec {
	match := chainMatch{port: port}
	return inboundChains{
		http: chainSpec{
			name:  "virtualInbound-catchall-http",
			match: match,
			http:  httpSpec{statPrefix: inboundPassthrough + ";", inbound: inboundRoute{cluster: inboundPassthrough}},
		},
		tcp: chainSpec{name: "virtualInbound", match: match,
			tcp: tcpSpec{cluster: inboundPassthrough, statPrefix: inboundPassthrough}},
		mode:     mode,
		identity: in.base.identity(),
		apart:    apart,
	}.list()
}

// build makes the route configuration. Source: Istio for the names and for the timeouts: the
// client's proxy has them, this one adds none. A connection that the workload closed before it saw
// the request is tried again, which no client can tell from here.
func (r inboundRoute) build() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:             r.cluster,
		ValidateClusters: wrapperspb.Bool(false),
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "inbound|http|" + strconv.FormatUint(uint64(r.port), 10),
			Domains: []string{anyDomain},
			Routes: []*routev3.Route{{
				Name:  defaultRouteName,
				Match: everyPath(),
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: r.cluster},
					Timeout:          durationpb.New(0),
					RetryPolicy: &routev3.RetryPolicy{RetryOn: "reset-before-request",
						NumRetries: wrapperspb.UInt32(2)},
					MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0),
						GrpcTimeoutHeaderMax: durationpb.New(0)},
				}},
			}},
		}},
	}
}
