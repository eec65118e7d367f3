package layout

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
)

// httpProxyRoute is the route configuration of the mesh's HTTP proxy port.
const httpProxyRoute = "http_proxy"

// egressGroup is one group of what a sidecar may call, without its routes: a changed route leaves
// the layout of listeners alone.
type egressGroup struct {
	// listener is the Sidecar's egress listener; nil: all ports.
	listener *networking.IstioEgressListener
	services *intern.List[*registry.Service]
}

// outboundIn is all that the layout of a sidecar's outbound side depends on.
type outboundIn struct {
	groups       *intern.List[egressGroup]
	interception push.Interception
	// capturesDNS says that clients resolve hosts to their allocated addresses.
	capturesDNS bool
	// bind is where bound listeners are that name no address; the zero address is the loopback one.
	bind netip.Addr
	// families are the IP versions that the proxy has.
	families envoy.Families
	// proxyPort is the mesh's HTTP proxy; zero: none.
	proxyPort uint32
	// reserved are the ports of the proxy's own two listeners.
	reserved [2]uint32
	// served are ports of the workload that its application may open on a loopback address, "8080,
	// 9090".
	served string
	// resolvesUnknown is destination.ResolvesUnknown.
	resolvesUnknown bool
}

// Outbound says which address and port of a sidecar's outbound side carries what. Listeners
// and routes are both made from it, so that every route configuration that a listener names exists.
// Immutable.
type Outbound struct {
	// Ports is sorted by listener name, names unique.
	Ports []OutboundPort
	// Routes is sorted by name, names unique.
	Routes []OutboundRoute
}

// OutboundPort is one listener of a sidecar's outbound side.
type OutboundPort struct {
	At    envoy.Address
	Group int
	// Bound says that the proxy opens the port; else redirected connections find it by their
	// original destination.
	Bound bool
	// Route is the route configuration of its HTTP side; empty: it has none.
	Route string
	// Proxy says that HTTP requests name absolute URLs (HTTP_PROXY, the mesh's HTTP proxy port).
	Proxy bool
	// Tcp are the services of its TCP side, the older first; may be empty. Where both sides are
	// there, the protocol of a connection is detected.
	Tcp []OutboundTarget
}

// OutboundTarget is one port of a service that a listener forwards connections to.
type OutboundTarget struct {
	Service *registry.Service
	// Port is one that the service has: that of the listener's own number, for a socket also its
	// only one.
	Port registry.Port
	// Subnet, when valid, are the addresses to which the client must have connected.
	Subnet netip.Prefix
}

// OutboundRoute is one route configuration of a sidecar's outbound side. Comparable.
type OutboundRoute struct {
	Name string
	// Group is the index in Scope.Egress of the services and VirtualServices that it is made of;
	// -1: none, so that only the catch-all remains.
	Group int
	// Port selects the services with an HTTP or sniffed port of that number; zero: every HTTP port
	// of every service (HTTP proxies, unix sockets).
	Port uint32
	// Host, when not empty, is the only service.
	Host string
	// Bound says that the proxy opens the ports, for declared services alone. A request for an unknown
	// host may name the port itself: the proxy would connect to itself without end.
	Bound bool
}

// egressGroups lists the groups of a scope, for outboundIn.
func egressGroups(lists *intern.Lists[egressGroup], sc *push.Scope) *intern.List[egressGroup] {
	groups := make([]egressGroup, 0, sc.Egress.Len())
	for _, e := range sc.Egress.Items() {
		groups = append(groups, egressGroup{e.Listener, e.Services})
	}
	return lists.Of(groups)
}

// outboundInOf picks what the layout depends on out of a scope.
func outboundInOf(lists *intern.Lists[egressGroup], sc *push.Scope) outboundIn {
	return outboundIn{
		groups:       egressGroups(lists, sc),
		interception: sc.Interception,
		capturesDNS:  sc.CapturesDNS,
		bind:         sc.Bind,
		families:     envoy.CapturedFamilies(sc),
		proxyPort:    sc.HTTPProxyPort,
		reserved:     [2]uint32{envoy.OutboundListenPort(sc.Mesh), envoy.InboundListenPort(sc.Mesh)},
		served:       servedPorts(sc),

		resolvesUnknown: destination.ResolvesUnknown(sc),
	}
}

// servedPorts are the ports of a workload without redirection and without ingress listeners.
func servedPorts(sc *push.Scope) string {
	if sc.Interception != push.None || sc.Own == nil || sc.Sidecar != nil && len(sc.Sidecar.Spec.Ingress) > 0 {
		return ""
	}
	var ports []uint32
	for _, p := range sc.Own.Inbound.Items() {
		ports = append(ports, p.TargetPort)
	}
	return workload.PortsText(ports)
}

// layOutOutbound decides what each outbound listener carries.
//
// Source: Istio. An HTTP port is one wildcard listener for all services of that number. A TCP, TLS
// or sniffed port is a listener on each virtual IP, and on the wildcard address where the service
// has none or has prefixes. Allocated addresses count only if the proxy captures DNS. A TLS port of
// a service that declares no address has both: by SNI it takes nothing from others. (Istio has no
// wildcard listener then.) What meets on one address is merged: HTTP and TCP by protocol detection,
// several TCP services by what tells their connections apart (prefix, SNI), and where nothing does
// the older service wins. MySQL and Mongo, where the server speaks first, are not merged with other
// protocols: the older wins. A Sidecar's egress listener with a port takes that port from the ones
// that have none.
func layOutOutbound(in outboundIn) *Outbound {
	b := layoutBuilder{in: in, at: map[envoy.Address]int{}, names: map[string]OutboundRoute{}}
	for i, g := range in.groups.Items() {
		b.group(i, g)
	}
	b.httpProxy()
	if in.resolvesUnknown && in.interception != push.None {
		b.names[envoy.UnknownHostsRoute] = OutboundRoute{Name: envoy.UnknownHostsRoute, Group: -1}
	}
	return b.done()
}

// layoutBuilder collects ports. Used by one call of layOutOutbound.
type layoutBuilder struct {
	in    outboundIn
	ports []layoutPort
	at    map[envoy.Address]int // index into ports
	names map[string]OutboundRoute
	// locked is how many of ports belong to earlier groups when a group without port begins.
	locked int
}

// layoutPort is a port in the making.
type layoutPort struct {
	OutboundPort
	http []OutboundTarget
	own  bool // the address is a service's virtual IP
}

// group adds one egress group.
func (b *layoutBuilder) group(i int, g egressGroup) {
	ip, path := envoy.ParseBind(g.listener.GetBind())
	bound := path != "" || workload.BindsPort(b.in.interception, g.listener.GetCaptureMode())
	if bound && !ip.IsValid() && path == "" {
		ip = b.loopback()
	}
	at := envoy.Address{IP: ip, Path: path}
	if p := g.listener.GetPort(); p != nil {
		at.Port = p.Number
		b.explicit(i, g, at, bound)
		return
	}
	b.locked = len(b.ports)
	for _, s := range g.services.Items() {
		for _, p := range s.Ports {
			at.Port = p.Number
			b.add(i, at, bound, p.Protocol, OutboundTarget{Service: s, Port: p})
		}
	}
}

// explicit adds an egress listener with a port of its own: behind it are the services that have
// that port, and behind a socket also those with one port alone. Source: Istio: without a service
// there is no listener.
func (b *layoutBuilder) explicit(i int, g egressGroup, at envoy.Address, bound bool) {
	b.locked = 0
	name := g.listener.Port.Protocol
	if envoy.IsHTTPProxy(name) {
		if at.Unspecified() {
			at.IP = b.in.families.Wildcard()
		}
		if p := b.port(i, at, bound, false); p != nil {
			p.Proxy = true
		}
		return
	}
	protocol := envoy.ParseProtocol(name)
	for _, s := range g.services.Items() {
		port, ok := s.Port(at.Port)
		if !ok && at.Path != "" && len(s.Ports) == 1 {
			port, ok = s.Ports[0], true
		}
		if !ok || port.Protocol == registry.UDP { // it has no cluster
			continue
		}
		b.add(i, at, bound, protocol, OutboundTarget{Service: s,
			Port: registry.Port{Number: port.Number, Protocol: protocol}})
	}
}

// add puts one service port where it belongs.
func (b *layoutBuilder) add(i int, at envoy.Address, bound bool, protocol registry.Protocol, t OutboundTarget) {
	if protocol == registry.UDP {
		return
	}
	if !at.Unspecified() || protocol.IsHTTP() {
		if at.Unspecified() {
			at.IP = b.in.families.Wildcard()
		}
		b.put(i, at, bound, false, protocol, t)
		return
	}
	ips := b.in.families.VirtualIPs(t.Service, b.in.capturesDNS)
	if len(ips) == 0 || protocol.IsTLS() && len(t.Service.Addresses) == 0 {
		any := at
		any.IP = b.in.families.Wildcard()
		b.put(i, any, bound, false, protocol, t)
	}
	for _, ip := range ips {
		at.IP, t.Subnet = ip.Addr().Unmap(), netip.Prefix{}
		if !ip.IsSingleIP() {
			at.IP, t.Subnet = b.in.families.Wildcard(), ip.Masked()
		}
		b.put(i, at, bound, ip.IsSingleIP(), protocol, t)
	}
}

// put adds one target at its final address.
func (b *layoutBuilder) put(i int, at envoy.Address, bound, own bool, protocol registry.Protocol, t OutboundTarget) {
	p := b.port(i, at, bound, own)
	if p == nil {
		return
	}
	t.Port.Protocol = protocol
	if protocol.IsHTTP() || protocol == registry.Unknown {
		p.http = append(p.http, t)
	}
	if !protocol.IsHTTP() {
		p.Tcp = append(p.Tcp, t)
	}
}

// port returns the port at an address, a new one when there is none; nil when an egress listener
// with a port of its own has it, or when it is one of the proxy's own two.
func (b *layoutBuilder) port(i int, at envoy.Address, bound, own bool) *layoutPort {
	if b.in.families == envoy.DualStack && at.Wildcard() {
		at.IP = b.in.families.Wildcard() // the listener has both
	}
	if n, ok := b.at[at]; ok {
		if n < b.locked {
			return nil
		}
		return &b.ports[n]
	}
	if b.reserved(at) || bound && !own && at.IP == b.loopback() && b.served(at.Port) {
		return nil
	}
	b.at[at] = len(b.ports)
	b.ports = append(b.ports, layoutPort{OutboundPort: OutboundPort{At: at, Group: i, Bound: bound}, own: own})
	return &b.ports[len(b.ports)-1]
}

// reserved says that at is taken by a listener that every proxy has: the two that redirection leads
// to, and those of the bootstrap for health and metrics. Envoy refuses two listeners of one
// address. Redirected connections arrive at the loopback address, where another listener would take
// them all.
func (b *layoutBuilder) reserved(at envoy.Address) bool {
	redirected := b.in.interception != push.None && slices.Contains(b.in.reserved[:], at.Port)
	switch {
	case at.Path != "" || at.Port == 0:
		return false
	case at.Wildcard():
		return redirected || envoy.IsBootstrapPort(at.Port)
	default:
		return redirected && envoy.IsLoopback(at.IP)
	}
}

// served says that the application has a port, or may open it at any time.
func (b *layoutBuilder) served(port uint32) bool {
	return b.in.served != "" && slices.Contains(strings.Split(b.in.served, ", "), strconv.FormatUint(uint64(port), 10))
}

// httpProxy adds the mesh's HTTP proxy port, which serves what the last group without a port does.
// Source: Istio's MeshConfig.proxyHttpPort.
func (b *layoutBuilder) httpProxy() {
	if b.in.proxyPort == 0 {
		return
	}
	at := envoy.Address{IP: b.loopback(), Port: b.in.proxyPort}
	if _, taken := b.at[at]; taken {
		return
	}
	group := -1
	for i, g := range b.in.groups.Items() {
		if g.listener.GetPort() == nil {
			group = i
		}
	}
	b.at[at] = len(b.ports)
	b.ports = append(b.ports, layoutPort{OutboundPort: OutboundPort{At: at, Group: group, Bound: true, Proxy: true,
		Route: httpProxyRoute}})
	b.names[httpProxyRoute] = OutboundRoute{Name: httpProxyRoute, Group: group}
}

// done settles conflicts and names the routes.
func (b *layoutBuilder) done() *Outbound {
	out := &Outbound{Ports: make([]OutboundPort, 0, len(b.ports))}
	for i := range b.ports {
		p := &b.ports[i]
		p.settle()
		b.nameRoute(p)
		out.Ports = append(out.Ports, p.OutboundPort)
	}
	slices.SortFunc(out.Ports, func(a, b OutboundPort) int { return a.At.Compare(b.At) })
	for _, r := range b.names {
		out.Routes = append(out.Routes, r)
	}
	slices.SortFunc(out.Routes, func(a, b OutboundRoute) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// settle orders the targets by age and drops what cannot be merged with the oldest.
func (p *layoutPort) settle() {
	slices.SortStableFunc(p.Tcp, olderTarget)
	slices.SortStableFunc(p.http, olderTarget)
	if !slices.ContainsFunc(p.Tcp, serverFirst) || len(p.Tcp)+len(p.http) < 2 {
		return
	}
	oldest := p.Tcp[0]
	if len(p.http) > 0 && olderTarget(p.http[0], oldest) < 0 {
		oldest = p.http[0]
	}
	if !serverFirst(oldest) {
		p.Tcp = slices.DeleteFunc(p.Tcp, serverFirst)
		return
	}
	p.http = nil
	p.Tcp = slices.DeleteFunc(p.Tcp, func(t OutboundTarget) bool { return t.Port.Protocol != oldest.Port.Protocol })
}

// serverFirst says that the server speaks first, so that detecting the protocol would stall.
func serverFirst(t OutboundTarget) bool {
	return t.Port.Protocol == registry.MySQL || t.Port.Protocol == registry.Mongo
}

// olderTarget orders by age, then by key, so that the order of input does not matter.
func olderTarget(a, b OutboundTarget) int {
	if a.Service == b.Service {
		return 0
	}
	return cmp.Or(a.Service.CompareAge(b.Service), a.Service.Key.Compare(b.Service.Key))
}

// nameRoute gives the HTTP side of p its route configuration.
//
// Source: Istio: the number of the port; "host:port" for a sniffed service on an address of its
// own; the path of a unix socket. Where two groups would share a number, the second one's is the
// name of its listener.
func (b *layoutBuilder) nameRoute(p *layoutPort) {
	if p.Route != "" || len(p.http) == 0 && !p.Proxy {
		return
	}
	r := OutboundRoute{Group: p.Group, Port: p.At.Port, Bound: p.Bound && !p.Proxy && p.At.Path == ""}
	switch {
	case p.At.Path != "":
		r.Name, r.Port = p.At.Path, 0
	case p.own && !p.Proxy:
		r.Host = p.http[0].Service.Host
		r.Name = r.Host + ":" + strconv.FormatUint(uint64(p.At.Port), 10)
	default:
		r.Name = strconv.FormatUint(uint64(p.At.Port), 10)
	}
	if p.Proxy {
		r.Port = 0
	}
	if other, taken := b.names[r.Name]; taken && other != r {
		r.Name = p.At.Name()
	}
	p.Route = r.Name
	b.names[r.Name] = r
}

// loopback is where bound listeners are that name no address.
func (b *layoutBuilder) loopback() netip.Addr {
	if b.in.bind.IsValid() {
		return b.in.bind
	}
	return b.in.families.Loopback()
}
