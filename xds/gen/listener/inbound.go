package listener

import (
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
)

// inboundListenersIn is all that the inbound listeners of a sidecar depend on.
type inboundListenersIn struct {
	generator *Generator
	base      *listenerBase
	workload.Workload
	// modes are how the workload takes connections.
	modes push.PeerModes
	// bypassed is what is wrong with ports that have no listener.
	bypassed workload.Bypass
}

// inboundRoute is the route configuration of one inbound port: everything goes to the workload.
type inboundRoute struct {
	cluster string
	port    uint32
}

// Layer chooses the inbound listeners.
//
// Source: Istio. Redirected connections arrive at virtualInbound, which has filter chains for each
// port and lets through to the workload what is for no known port. Where nothing is redirected, the
// ports of a Sidecar's ingress listeners are opened, else those at which the application listens on
// a loopback address alone. At the others the application itself listens.
func (in inboundListenersIn) Layer() *envoy.Layer {
	lists := &in.generator.chains
	ports := in.Workload.Ports()
	var out []listenerSpec
	virtual := newChainSet(lists)
	apart := in.tellsTLS(ports)
	virtual.specs = in.passthroughChains(apart, ports)
	for _, p := range ports {
		if !p.Bound {
			virtual.specs = append(virtual.specs, in.chains(p, apart)...)
			continue
		}
		set := newChainSet(lists)
		set.specs = in.chains(p, false)
		out = append(out, listenerSpec{base: in.base, name: p.At.Name(), at: p.At, side: sideInbound, bound: true,
			chains: set.list()})
	}
	if in.base.interception == push.None {
		return in.generator.build(out, in.bypassed.Problems(in.Workload.Name()))
	}
	return in.generator.build(append(out, listenerSpec{
		base:    in.base,
		name:    "virtualInbound",
		at:      envoy.Address{IP: in.base.families.Wildcard(), Port: envoy.InboundListenPort(in.base.mesh)},
		also:    in.base.families.Second(),
		side:    sideInbound,
		bound:   true,
		capture: captureHere,
		chains:  virtual.list(),
	}), nil)
}

// tellsTLS says that virtualInbound has to tell TLS from plaintext, for some port.
func (in inboundListenersIn) tellsTLS(ports []workload.Port) bool {
	mutual := in.base.identity && (in.modes.Default != push.PeerDisable || in.modes.Ports.Len() > 0)
	return mutual || slices.ContainsFunc(ports, func(p workload.Port) bool { return !p.Bound && p.Tls != nil })
}

// chains are the filter chains of one port: of HTTP, of connections, or where the protocol is not
// known of both. apart says that the listener tells TLS from plaintext.
func (in inboundListenersIn) chains(p workload.Port, apart bool) []chainSpec {
	name := p.At.Name()
	cluster := envoy.InboundCluster(p.Port)
	var match chainMatch
	if !p.Bound {
		match.port = p.Port
	}
	return inboundChains{
		http: chainSpec{
			name:  name,
			match: match,
			http:  httpSpec{statPrefix: "inbound_" + name + ";", inbound: inboundRoute{cluster: cluster, port: p.Port}},
		},
		tcp:      chainSpec{name: name, match: match, tcp: tcpSpec{cluster: cluster, statPrefix: cluster}},
		protocol: p.Protocol,
		mode:     in.modes.At(p.Port),
		own:      p.Tls,
		identity: in.base.identity,
		apart:    apart,
	}.list()
}

// passthroughChains take what is for none of ports, and close connections to the listener's own
// port, which would loop without end. Ports that have a mode of their own have chains of their
// own. Source: Istio, which does so for port-level modes of PeerAuthentication.
func (in inboundListenersIn) passthroughChains(apart bool, ports []workload.Port) []chainSpec {
	own := envoy.InboundListenPort(in.base.mesh)
	out := []chainSpec{{name: "virtualInbound-blackhole", match: chainMatch{port: own},
		tcp: tcpSpec{cluster: envoy.BlackHole, statPrefix: envoy.BlackHole}}}
	out = append(out, in.passthrough(0, in.modes.Default, apart)...)
	for _, m := range in.modes.Ports.Items() {
		if m.Port != own && !slices.ContainsFunc(ports, func(p workload.Port) bool {
			return !p.Bound &&
				p.Port == m.Port
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
			http:  httpSpec{statPrefix: envoy.InboundPassthrough + ";", inbound: inboundRoute{cluster: envoy.InboundPassthrough}},
		},
		tcp: chainSpec{name: "virtualInbound", match: match,
			tcp: tcpSpec{cluster: envoy.InboundPassthrough, statPrefix: envoy.InboundPassthrough}},
		mode:     mode,
		identity: in.base.identity,
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
			Domains: []string{envoy.AnyDomain},
			Routes: []*routev3.Route{{
				Name:  envoy.DefaultRouteName,
				Match: envoy.EveryPath(),
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
