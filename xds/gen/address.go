package gen

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// address is where a listener is: an IP address and port, or a unix socket. Comparable.
type address struct {
	ip netip.Addr
	// path is the socket as configuration writes it, "unix:///run/web.sock" or "unix://@name";
	// empty: an IP address.
	path string
	port uint32
}

// unspecified says that neither an IP address nor a path is given.
func (a address) unspecified() bool { return !a.ip.IsValid() && a.path == "" }

// name is the listener's name. Source: Istio, getListenerName: "0.0.0.0_80".
func (a address) name() string {
	host := a.path
	if host == "" {
		host = a.ip.String()
	}
	return host + "_" + strconv.FormatUint(uint64(a.port), 10)
}

// compare orders by address, path, port.
func (a address) compare(b address) int {
	return cmp.Or(a.ip.Compare(b.ip), cmp.Compare(a.path, b.path), cmp.Compare(a.port, b.port))
}

// wildcard says that a is every address of a family.
func (a address) wildcard() bool { return a.path == "" && a.ip.IsUnspecified() }

// isLoopback says that a is where the host redirects a machine's own connections to.
func isLoopback(a netip.Addr) bool { return a == onlyV4.loopback() || a == onlyV6.loopback() }

// envoy is a as Envoy's message.
func (a address) envoy() *corev3.Address {
	if a.path != "" {
		return pipeAddress(a.path)
	}
	return socketAddress(a.ip.String(), a.port)
}

// socketAddress is an IP address (or a name, where Envoy takes one) and a port.
func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// pipeAddress is a unix socket written as "unix://" and a path; a path that begins with "@" is
// abstract.
func pipeAddress(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: strings.TrimPrefix(path,
		unixScheme)}}}
}

// unixScheme begins the address of a unix socket.
const unixScheme = "unix://"

// parseBind reads the bind field of a listener; both results are zero when it is empty.
func parseBind(bind string) (ip netip.Addr, path string) {
	if bind == "" {
		return netip.Addr{}, ""
	}
	if ip, err := netip.ParseAddr(bind); err == nil {
		return ip.Unmap(), ""
	}
	return netip.Addr{}, bind
}

// families are the IP versions that a proxy has.
type families uint8

const (
	onlyV4 families = iota
	onlyV6
	dualStack
)

// familiesOf are those of the proxy's own addresses.
func familiesOf(sc *push.Scope) families {
	switch {
	case sc.IPv6Only:
		return onlyV6
	case sc.DualStack:
		return dualStack
	default:
		return onlyV4
	}
}

// capturedFamilies are those of the connections that reach the proxy. With TPROXY the machine's
// rules bring both, whichever addresses the workload has registered.
func capturedFamilies(sc *push.Scope) families {
	switch sc.Interception {
	case push.TProxy:
		return dualStack
	case push.TProxyIPv4:
		return onlyV4
	default:
		return familiesOf(sc)
	}
}

// tproxyOutbound6 is where the agent's rules send outbound IPv6 connections: an address of its own
// on the loopback interface, because the kernel does not accept a redirect to ::1 from other
// addresses.
const tproxyOutbound6 = "fd61:7368:6f72:65::1"

// wildcard is the address that stands for all; with both families, the one of IPv4, to which
// listeners add the other.
func (f families) wildcard() netip.Addr {
	if f == onlyV6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// second is the other wildcard address where there are both families, else the zero address.
func (f families) second() netip.Addr {
	if f == dualStack {
		return netip.IPv6Unspecified()
	}
	return netip.Addr{}
}

// virtualIPs are the addresses to which clients of the proxy connect: the declared ones, or else,
// if the proxy captures DNS, the allocated ones of its IP versions.
func (f families) virtualIPs(s *registry.Service, capturesDNS bool) []netip.Prefix {
	all := s.VirtualIPs()
	if len(s.Addresses) > 0 {
		return all
	}
	if !capturesDNS {
		return nil
	}
	if f == dualStack {
		return all
	}
	own := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if p.Addr().Is4() == (f == onlyV4) {
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

func (f families) loopback() netip.Addr {
	if f == onlyV6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Ports of every proxy's bootstrap. Source: istio.io, "Ports used by Istio".
const (
	healthPort  = 15021
	metricsPort = 15090
)

// isBootstrapPort says that a listener of the bootstrap has the port on every address.
func isBootstrapPort(port uint32) bool { return port == healthPort || port == metricsPort }

// outboundListenPort is where outbound connections are redirected to.
// Source: Istio's MeshConfig.proxyListenPort.
func outboundListenPort(m *push.Mesh) uint32 {
	if p := m.Config.GetProxyListenPort(); p > 0 {
		return uint32(p)
	}
	return config.DefaultOutboundPort
}

// inboundListenPort is where inbound connections are redirected to.
// Source: Istio's MeshConfig.proxyInboundListenPort.
func inboundListenPort(m *push.Mesh) uint32 {
	if p := m.Config.GetProxyInboundListenPort(); p > 0 {
		return uint32(p)
	}
	return config.DefaultInboundPort
}
