package gen

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
	families families
	// proxyPort is the mesh's HTTP proxy; zero: none.
	proxyPort uint32
	// reserved are the ports of the proxy's own two listeners.
	reserved [2]uint32
	// served are ports of the workload that its application may open on a loopback address, "8080,
	// 9090".
	served string
}

// outboundLayout says which address and port of a sidecar's outbound side carries what. Listeners
// and routes are both made from it, so that every route configuration that a listener names exists.
// Immutable.
type outboundLayout struct {
	// ports is sorted by listener name, names unique.
	ports []outboundPort
	// routes is sorted by name, names unique.
	routes []outboundRoute
}

// outboundPort is one listener of a sidecar's outbound side.
type outboundPort struct {
	at    address
	group int
	// bound says that the proxy opens the port; else redirected connections find it by their
	// original destination.
	bound bool
	// route is the route configuration of its HTTP side; empty: it has none.
	route string
	// proxy says that HTTP requests name absolute URLs (HTTP_PROXY, the mesh's HTTP proxy port).
	proxy bool
	// tcp are the services of its TCP side, the older first; may be empty. Where both sides are
	// there, the protocol of a connection is detected.
	tcp []outboundTarget
}

// outboundTarget is one port of a service that a listener forwards connections to.
type outboundTarget struct {
	service *registry.Service
	// port is one that the service has: that of the listener's own number, for a socket also its
	// only one.
	port registry.Port
	// subnet, when valid, are the addresses to which the client must have connected.
	subnet netip.Prefix
}

// outboundRoute is one route configuration of a sidecar's outbound side. Comparable.
type outboundRoute struct {
	name string
	// group is the index in Scope.Egress of the services and VirtualServices that it is made of;
	// -1: none, so that only the catch-all remains.
	group int
	// port selects the services with an HTTP or sniffed port of that number; zero: every HTTP port
	// of every service (HTTP proxies, unix sockets).
	port uint32
	// host, when not empty, is the only service.
	host string
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
		families:     capturedFamilies(sc),
		proxyPort:    sc.HTTPProxyPort,
		reserved:     [2]uint32{outboundListenPort(sc.Mesh), inboundListenPort(sc.Mesh)},
		served:       servedPorts(sc),
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
	return portsText(ports)
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
func layOutOutbound(in outboundIn) *outboundLayout {
	b := layoutBuilder{in: in, at: map[address]int{}, names: map[string]outboundRoute{}}
	for i, g := range in.groups.Items() {
		b.group(i, g)
	}
	b.httpProxy()
	return b.done()
}

// layoutBuilder collects ports. Used by one call of layOutOutbound.
type layoutBuilder struct {
	in    outboundIn
	ports []layoutPort
	at    map[address]int // index into ports
	names map[string]outboundRoute
	// locked is how many of ports belong to earlier groups when a group without port begins.
	locked int
}

// layoutPort is a port in the making.
type layoutPort struct {
	outboundPort
	http []outboundTarget
	own  bool // the address is a service's virtual IP
}

// group adds one egress group.
func (b *layoutBuilder) group(i int, g egressGroup) {
	ip, path := parseBind(g.listener.GetBind())
	bound := path != "" || bindsPort(b.in.interception, g.listener.GetCaptureMode())
	if bound && !ip.IsValid() && path == "" {
		ip = b.loopback()
	}
	at := address{ip: ip, path: path}
	if p := g.listener.GetPort(); p != nil {
		at.port = p.Number
		b.explicit(i, g, at, bound)
		return
	}
	b.locked = len(b.ports)
	for _, s := range g.services.Items() {
		for _, p := range s.Ports {
			at.port = p.Number
			b.add(i, at, bound, p.Protocol, outboundTarget{service: s, port: p})
		}
	}
}

// explicit adds an egress listener with a port of its own: behind it are the services that have
// that port, and behind a socket also those with one port alone. Source: Istio: without a service
// there is no listener.
func (b *layoutBuilder) explicit(i int, g egressGroup, at address, bound bool) {
	b.locked = 0
	name := g.listener.Port.Protocol
	if isHTTPProxy(name) {
		if at.unspecified() {
			at.ip = b.in.families.wildcard()
		}
		if p := b.port(i, at, bound, false); p != nil {
			p.proxy = true
		}
		return
	}
	protocol := parseProtocol(name)
	for _, s := range g.services.Items() {
		port, ok := s.Port(at.port)
		if !ok && at.path != "" && len(s.Ports) == 1 {
			port, ok = s.Ports[0], true
		}
		if !ok || port.Protocol == registry.UDP { // it has no cluster
			continue
		}
		b.add(i, at, bound, protocol, outboundTarget{service: s,
			port: registry.Port{Number: port.Number, Protocol: protocol}})
	}
}

// add puts one service port where it belongs.
func (b *layoutBuilder) add(i int, at address, bound bool, protocol registry.Protocol, t outboundTarget) {
	if protocol == registry.UDP {
		return
	}
	if !at.unspecified() || protocol.IsHTTP() {
		if at.unspecified() {
			at.ip = b.in.families.wildcard()
		}
		b.put(i, at, bound, false, protocol, t)
		return
	}
	ips := b.in.families.virtualIPs(t.service, b.in.capturesDNS)
	if len(ips) == 0 || protocol.IsTLS() && len(t.service.Addresses) == 0 {
		any := at
		any.ip = b.in.families.wildcard()
		b.put(i, any, bound, false, protocol, t)
	}
	for _, ip := range ips {
		at.ip, t.subnet = ip.Addr().Unmap(), netip.Prefix{}
		if !ip.IsSingleIP() {
			at.ip, t.subnet = b.in.families.wildcard(), ip.Masked()
		}
		b.put(i, at, bound, ip.IsSingleIP(), protocol, t)
	}
}

// put adds one target at its final address.
func (b *layoutBuilder) put(i int, at address, bound, own bool, protocol registry.Protocol, t outboundTarget) {
	p := b.port(i, at, bound, own)
	if p == nil {
		return
	}
	t.port.Protocol = protocol
	if protocol.IsHTTP() || protocol == registry.Unknown {
		p.http = append(p.http, t)
	}
	if !protocol.IsHTTP() {
		p.tcp = append(p.tcp, t)
	}
}

// port returns the port at an address, a new one when there is none; nil when an egress listener
// with a port of its own has it, or when it is one of the proxy's own two.
func (b *layoutBuilder) port(i int, at address, bound, own bool) *layoutPort {
	if b.in.families == dualStack && at.wildcard() {
		at.ip = b.in.families.wildcard() // the listener has both
	}
	if n, ok := b.at[at]; ok {
		if n < b.locked {
			return nil
		}
		return &b.ports[n]
	}
	if b.reserved(at, bound) || bound && !own && at.ip == b.loopback() && b.served(at.port) {
		return nil
	}
	b.at[at] = len(b.ports)
	b.ports = append(b.ports, layoutPort{outboundPort: outboundPort{at: at, group: i, bound: bound}, own: own})
	return &b.ports[len(b.ports)-1]
}

// reserved says that at is taken by a listener that every proxy has: the two that redirection leads
// to, and those of the bootstrap for health and metrics. Envoy refuses two listeners of one
// address, and redirected connections arrive at the loopback address, where a bound listener would
// take them all.
func (b *layoutBuilder) reserved(at address, bound bool) bool {
	redirected := b.in.interception != push.None && slices.Contains(b.in.reserved[:], at.port)
	switch {
	case at.path != "" || at.port == 0:
		return false
	case at.wildcard():
		return redirected || isBootstrapPort(at.port)
	default:
		return redirected && bound && isLoopback(at.ip)
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
	at := address{ip: b.loopback(), port: b.in.proxyPort}
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
	b.ports = append(b.ports, layoutPort{outboundPort: outboundPort{at: at, group: group, bound: true, proxy: true,
		route: httpProxyRoute}})
	b.names[httpProxyRoute] = outboundRoute{name: httpProxyRoute, group: group}
}

// done settles conflicts and names the routes.
func (b *layoutBuilder) done() *outboundLayout {
	out := &outboundLayout{ports: make([]outboundPort, 0, len(b.ports))}
	for i := range b.ports {
		p := &b.ports[i]
		p.settle()
		b.nameRoute(p)
		out.ports = append(out.ports, p.outboundPort)
	}
	slices.SortFunc(out.ports, func(a, b outboundPort) int { return a.at.compare(b.at) })
	for _, r := range b.names {
		out.routes = append(out.routes, r)
	}
	slices.SortFunc(out.routes, func(a, b outboundRoute) int { return cmp.Compare(a.name, b.name) })
	return out
}

// settle orders the targets by age and drops what cannot be merged with the oldest.
func (p *layoutPort) settle() {
	slices.SortStableFunc(p.tcp, olderTarget)
	slices.SortStableFunc(p.http, olderTarget)
	if !slices.ContainsFunc(p.tcp, serverFirst) || len(p.tcp)+len(p.http) < 2 {
		return
	}
	oldest := p.tcp[0]
	if len(p.http) > 0 && olderTarget(p.http[0], oldest) < 0 {
		oldest = p.http[0]
	}
	if !serverFirst(oldest) {
		p.tcp = slices.DeleteFunc(p.tcp, serverFirst)
		return
	}
	p.http = nil
	p.tcp = slices.DeleteFunc(p.tcp, func(t outboundTarget) bool { return t.port.Protocol != oldest.port.Protocol })
}

// serverFirst says that the server speaks first, so that detecting the protocol would stall.
func serverFirst(t outboundTarget) bool {
	return t.port.Protocol == registry.MySQL || t.port.Protocol == registry.Mongo
}

// olderTarget orders by age, then by key, so that the order of input does not matter.
func olderTarget(a, b outboundTarget) int {
	if a.service == b.service {
		return 0
	}
	return cmp.Or(a.service.CompareAge(b.service), a.service.Key.Compare(b.service.Key))
}

// nameRoute gives the HTTP side of p its route configuration.
//
// Source: Istio: the number of the port; "host:port" for a sniffed service on an address of its
// own; the path of a unix socket. Where two groups would share a number, the second one's is the
// name of its listener.
func (b *layoutBuilder) nameRoute(p *layoutPort) {
	if p.route != "" || len(p.http) == 0 && !p.proxy {
		return
	}
	r := outboundRoute{group: p.group, port: p.at.port}
	switch {
	case p.at.path != "":
		r.name, r.port = p.at.path, 0
	case p.own && !p.proxy:
		r.host = p.http[0].service.Host
		r.name = r.host + ":" + strconv.FormatUint(uint64(p.at.port), 10)
	default:
		r.name = strconv.FormatUint(uint64(p.at.port), 10)
	}
	if p.proxy {
		r.port = 0
	}
	if other, taken := b.names[r.name]; taken && other != r {
		r.name = p.at.name()
	}
	p.route = r.name
	b.names[r.name] = r
}

// loopback is where bound listeners are that name no address.
func (b *layoutBuilder) loopback() netip.Addr {
	if b.in.bind.IsValid() {
		return b.in.bind
	}
	return b.in.families.loopback()
}
