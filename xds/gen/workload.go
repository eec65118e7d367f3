package gen

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// workload is what decides at which ports a sidecar takes connections for its workload. Comparable.
type workload struct {
	own *push.Own
	// sidecar's ingress listeners, where it has any, stand instead of what own says.
	sidecar      *push.SidecarConfig
	interception push.Interception
	families     families
	// inboundPort and outboundPort are where redirected connections arrive.
	inboundPort, outboundPort uint32
}

// workloadOf is that of a scope.
func workloadOf(sc *push.Scope) workload {
	return workload{own: sc.Own, sidecar: sc.Sidecar, interception: sc.Interception, families: capturedFamilies(sc),
		inboundPort: inboundListenPort(sc.Mesh), outboundPort: outboundListenPort(sc.Mesh)}
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

// ports lists what the workload serves, by number, each once: of several services with one target
// port the oldest decides.
func (w workload) ports() []inboundPort {
	if w.sidecar != nil && len(w.sidecar.Spec.Ingress) > 0 {
		return w.ingressPorts()
	}
	services := slices.Clone(w.own.Inbound.Items())
	if w.interception == push.None {
		services = slices.DeleteFunc(services, func(s push.Inbound) bool { return s.State != registry.PortLoopback })
	}
	slices.SortStableFunc(services, func(a, b push.Inbound) int {
		return cmp.Or(cmp.Compare(a.TargetPort, b.TargetPort), a.Service.CompareAge(b.Service),
			a.Service.Key.Compare(b.Service.Key))
	})
	var out []inboundPort
	for _, s := range services {
		p := inboundPort{port: s.TargetPort, protocol: s.Port.Protocol,
			at: address{ip: w.families.wildcard(), port: s.TargetPort}}
		if w.interception == push.None {
			p.at.ip, p.bound = w.addresses()[0], true // there is one: the endpoint was found by it
		}
		if p.protocol == registry.UDP || w.reserved(p) || len(out) > 0 && out[len(out)-1].port == p.port {
			continue
		}
		out = append(out, p)
	}
	return out
}

// reserved says that a listener that every proxy has is at the port: a connection to it is not for
// the workload, and Envoy refuses two listeners of one address.
func (w workload) reserved(p inboundPort) bool {
	if !p.bound {
		return p.port == w.inboundPort
	}
	redirected := w.interception != push.None && (p.port == w.inboundPort || p.port == w.outboundPort)
	if p.at.wildcard() {
		return redirected || isBootstrapPort(p.port)
	}
	// redirected connections arrive at the workload's addresses, where the port would take them all
	return redirected && p.at.path == "" && (isLoopback(p.at.ip) || slices.Contains(w.addresses(), p.at.ip))
}

// ingressPorts are those of the Sidecar.
func (w workload) ingressPorts() []inboundPort {
	var out []inboundPort
	for _, l := range w.sidecar.Spec.Ingress {
		n := l.GetPort().GetNumber()
		p := inboundPort{port: n, protocol: insideTLS(l), tls: l.Tls,
			bound: bindsPort(w.interception, l.CaptureMode)}
		p.at = w.ingressAddress(l, p.bound)
		if p.protocol == registry.UDP || w.reserved(p) ||
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
func (w workload) ingressAddress(l *networking.IstioIngressListener, bound bool) address {
	a := address{port: l.GetPort().GetNumber()}
	a.ip, a.path = parseBind(l.Bind)
	if !a.unspecified() {
		return a
	}
	a.ip = w.families.wildcard()
	if own := w.addresses(); bound && len(own) > 0 {
		a.ip = own[0]
	}
	return a
}

func (w workload) addresses() []netip.Addr {
	if w.own == nil {
		return nil
	}
	return w.own.Addresses.Items()
}

// ingress is the Sidecar's listener of a port, nil when there is none.
func (w workload) ingress(port uint32) *networking.IstioIngressListener {
	if w.sidecar == nil {
		return nil
	}
	for _, l := range w.sidecar.Spec.Ingress {
		if l.GetPort().GetNumber() == port {
			return l
		}
	}
	return nil
}

// target is where the workload listens for a port.
//
// Source: istio.io, IstioIngressListener.defaultEndpoint: a unix socket, the loopback address, or
// the unspecified one, which means the proxy's own. Without it a redirected connection goes where
// it was meant to go; one that was made to the proxy's own listener goes to the same port of the
// loopback address.
func (w workload) target(p inboundPort) address {
	to := w.ingress(p.port).GetDefaultEndpoint()
	if ip, path := parseBind(to); path != "" && !ip.IsValid() {
		if at, err := netip.ParseAddrPort(to); err == nil {
			return address{ip: w.local(at.Addr()), port: uint32(at.Port())}
		}
		return address{path: path}
	}
	if !p.bound {
		return address{}
	}
	return address{ip: w.families.loopback(), port: p.port}
}

// local is the address that a default endpoint means.
func (w workload) local(ip netip.Addr) netip.Addr {
	if !ip.IsUnspecified() {
		return ip
	}
	for _, own := range w.own.Addresses.Items() {
		if own.Is4() == ip.Is4() {
			return own
		}
	}
	return w.families.loopback()
}

// bindsPort says whether a listener opens its port: its capture mode decides, else the proxy's.
func bindsPort(i push.Interception, mode networking.CaptureMode) bool {
	switch mode {
	case networking.CaptureMode_NONE:
		return true
	case networking.CaptureMode_IPTABLES:
		return false
	default:
		return i == push.None
	}
}

// portsText lists ports, each once.
func portsText(ports []uint32) string {
	slices.Sort(ports)
	var out []string
	for _, p := range slices.Compact(ports) {
		out = append(out, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(out, ", ")
}
