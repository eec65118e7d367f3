package workload

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Workload is what decides at which ports a sidecar takes connections for its workload. Comparable.
type Workload struct {
	Own *push.Own
	// Sidecar's ingress listeners, where it has any, stand instead of what own says.
	Sidecar      *push.SidecarConfig
	Interception push.Interception
	Families     envoy.Families
	// inboundPort and outboundPort are where redirected connections arrive.
	inboundPort, outboundPort uint32
}

// Of is that of a scope.
func Of(sc *push.Scope) Workload {
	return Workload{Own: sc.Own, Sidecar: sc.Sidecar, Interception: sc.Interception, Families: envoy.CapturedFamilies(sc),
		inboundPort: envoy.InboundListenPort(sc.Mesh), outboundPort: envoy.OutboundListenPort(sc.Mesh)}
}

// Port is one port that the workload serves.
type Port struct {
	Port     uint32
	Protocol registry.Protocol
	// At names the chains, and is where a listener of its own is.
	At envoy.Address
	// Tls, when not nil, ends TLS of clients that are not of the mesh; protocol is what is inside.
	Tls *networking.ServerTLSSettings
	// Bound says that the port has a listener of its own.
	Bound bool
}

// Ports lists what the workload serves, by number, each once: of several services with one target
// port the oldest decides.
func (w Workload) Ports() []Port {
	if w.Sidecar != nil && len(w.Sidecar.Spec.Ingress) > 0 {
		return w.ingressPorts()
	}
	services := slices.Clone(w.Own.Inbound.Items())
	if w.Interception == push.None {
		services = slices.DeleteFunc(services, func(s push.Inbound) bool { return s.State != registry.PortLoopback })
	}
	slices.SortStableFunc(services, func(a, b push.Inbound) int {
		return cmp.Or(cmp.Compare(a.TargetPort, b.TargetPort), a.Service.CompareAge(b.Service),
			a.Service.Key.Compare(b.Service.Key))
	})
	var out []Port
	for _, s := range services {
		p := Port{Port: s.TargetPort, Protocol: s.Port.Protocol,
			At: envoy.Address{IP: w.Families.Wildcard(), Port: s.TargetPort}}
		if w.Interception == push.None {
			p.At.IP, p.Bound = w.addresses()[0], true // there is one: the endpoint was found by it
		}
		if p.Protocol == registry.UDP || w.reserved(p) || len(out) > 0 && out[len(out)-1].Port == p.Port {
			continue
		}
		out = append(out, p)
	}
	return out
}

// reserved says that a listener that every proxy has is at the port: a connection to it is not for
// the workload, and Envoy refuses two listeners of one address.
func (w Workload) reserved(p Port) bool {
	if !p.Bound {
		return p.Port == w.inboundPort
	}
	redirected := w.Interception != push.None && (p.Port == w.inboundPort || p.Port == w.outboundPort)
	if p.At.Wildcard() {
		return redirected || envoy.IsBootstrapPort(p.Port)
	}
	// redirected connections arrive at the workload's addresses, where the port would take them all
	return redirected && p.At.Path == "" && (envoy.IsLoopback(p.At.IP) || slices.Contains(w.addresses(), p.At.IP))
}

// ingressPorts are those of the Sidecar.
func (w Workload) ingressPorts() []Port {
	var out []Port
	for _, l := range w.Sidecar.Spec.Ingress {
		n := l.GetPort().GetNumber()
		p := Port{Port: n, Protocol: insideTLS(l), Tls: l.Tls,
			Bound: BindsPort(w.Interception, l.CaptureMode)}
		p.At = w.ingressAddress(l, p.Bound)
		if p.Protocol == registry.UDP || w.reserved(p) ||
			slices.ContainsFunc(out, func(o Port) bool { return o.Port == n }) {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return out
}

// insideTLS is the protocol of an ingress listener, inside of TLS where it ends it.
func insideTLS(l *networking.IstioIngressListener) registry.Protocol {
	p := envoy.ParseProtocol(l.GetPort().GetProtocol())
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
func (w Workload) ingressAddress(l *networking.IstioIngressListener, bound bool) envoy.Address {
	a := envoy.Address{Port: l.GetPort().GetNumber()}
	a.IP, a.Path = envoy.ParseBind(l.Bind)
	if !a.Unspecified() {
		return a
	}
	a.IP = w.Families.Wildcard()
	if own := w.addresses(); bound && len(own) > 0 {
		a.IP = own[0]
	}
	return a
}

func (w Workload) addresses() []netip.Addr {
	if w.Own == nil {
		return nil
	}
	return w.Own.Addresses.Items()
}

// Ingress is the Sidecar's listener of a port, nil when there is none.
func (w Workload) Ingress(port uint32) *networking.IstioIngressListener {
	if w.Sidecar == nil {
		return nil
	}
	for _, l := range w.Sidecar.Spec.Ingress {
		if l.GetPort().GetNumber() == port {
			return l
		}
	}
	return nil
}

// Target is where the workload listens for a port.
//
// Source: istio.io, IstioIngressListener.defaultEndpoint: a unix socket, the loopback address, or
// the unspecified one, which means the proxy's own. Without it a redirected connection goes where
// it was meant to go; one that was made to the proxy's own listener goes to the same port of the
// loopback address.
func (w Workload) Target(p Port) envoy.Address {
	to := w.Ingress(p.Port).GetDefaultEndpoint()
	if ip, path := envoy.ParseBind(to); path != "" && !ip.IsValid() {
		if at, err := netip.ParseAddrPort(to); err == nil {
			return envoy.Address{IP: w.local(at.Addr()), Port: uint32(at.Port())}
		}
		return envoy.Address{Path: path}
	}
	if !p.Bound {
		return envoy.Address{}
	}
	return envoy.Address{IP: w.Families.Loopback(), Port: p.Port}
}

// local is the address that a default endpoint means.
func (w Workload) local(ip netip.Addr) netip.Addr {
	if !ip.IsUnspecified() {
		return ip
	}
	for _, own := range w.Own.Addresses.Items() {
		if own.Is4() == ip.Is4() {
			return own
		}
	}
	return w.Families.Loopback()
}

// BindsPort says whether a listener opens its port: its capture mode decides, else the proxy's.
func BindsPort(i push.Interception, mode networking.CaptureMode) bool {
	switch mode {
	case networking.CaptureMode_NONE:
		return true
	case networking.CaptureMode_IPTABLES:
		return false
	default:
		return i == push.None
	}
}

// PortsText lists ports, each once.
func PortsText(ports []uint32) string {
	slices.Sort(ports)
	var out []string
	for _, p := range slices.Compact(ports) {
		out = append(out, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(out, ", ")
}
