package envoy

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

// Address is where a listener is: an IP address and port, or a unix socket. Comparable.
type Address struct {
	IP netip.Addr
	// Path is the socket as configuration writes it, "unix:///run/web.sock" or "unix://@name";
	// empty: an IP address.
	Path string
	Port uint32
}

// Unspecified says that neither an IP address nor a path is given.
func (a Address) Unspecified() bool { return !a.IP.IsValid() && a.Path == "" }

// Name is the listener's name. Source: Istio, getListenerName: "0.0.0.0_80".
func (a Address) Name() string {
	host := a.Path
	if host == "" {
		host = a.IP.String()
	}
	return host + "_" + strconv.FormatUint(uint64(a.Port), 10)
}

// Compare orders by address, path, port.
func (a Address) Compare(b Address) int {
	return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Port, b.Port))
}

// Wildcard says that a is every address of a family.
func (a Address) Wildcard() bool { return a.Path == "" && a.IP.IsUnspecified() }

// IsLoopback says that a is where the host redirects a machine's own connections to.
func IsLoopback(a netip.Addr) bool { return a == OnlyV4.Loopback() || a == OnlyV6.Loopback() }

// Message is a as Envoy's message.
func (a Address) Message() *corev3.Address {
	if a.Path != "" {
		return PipeAddress(a.Path)
	}
	return SocketAddress(a.IP.String(), a.Port)
}

// SocketAddress is an IP address (or a name, where Envoy takes one) and a port.
func SocketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// PipeAddress is a unix socket written as "unix://" and a path; a path that begins with "@" is
// abstract.
func PipeAddress(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: strings.TrimPrefix(path,
		UnixScheme)}}}
}

// UnixScheme begins the address of a unix socket.
const UnixScheme = "unix://"

// ParseBind reads the bind field of a listener; both results are zero when it is empty.
func ParseBind(bind string) (ip netip.Addr, path string) {
	if bind == "" {
		return netip.Addr{}, ""
	}
	if ip, err := netip.ParseAddr(bind); err == nil {
		return ip.Unmap(), ""
	}
	return netip.Addr{}, bind
}

// Families are the IP versions that a proxy has.
type Families uint8

const (
	OnlyV4 Families = iota
	OnlyV6
	DualStack
)

// FamiliesOf are those of the proxy's own addresses.
func FamiliesOf(sc *push.Scope) Families {
	switch {
	case sc.IPv6Only:
		return OnlyV6
	case sc.DualStack:
		return DualStack
	default:
		return OnlyV4
	}
}

// CapturedFamilies are those of the connections that reach the proxy. With TPROXY the machine's
// rules bring both, whichever addresses the workload has registered.
func CapturedFamilies(sc *push.Scope) Families {
	switch sc.Interception {
	case push.TProxy:
		return DualStack
	case push.TProxyIPv4:
		return OnlyV4
	default:
		return FamiliesOf(sc)
	}
}

// TproxyOutbound6 is where the agent's rules send outbound IPv6 connections: an address of its own
// on the loopback interface, because the kernel does not accept a redirect to ::1 from other
// addresses.
const TproxyOutbound6 = "fd61:7368:6f72:65::1"

// Wildcard is the address that stands for all; with both families, the one of IPv4, to which
// listeners add the other.
func (f Families) Wildcard() netip.Addr {
	if f == OnlyV6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Second is the other wildcard address where there are both families, else the zero address.
func (f Families) Second() netip.Addr {
	if f == DualStack {
		return netip.IPv6Unspecified()
	}
	return netip.Addr{}
}

// VirtualIPs are the addresses to which clients of the proxy connect: the declared ones, or else,
// if the proxy captures DNS, the allocated ones of its IP versions.
func (f Families) VirtualIPs(s *registry.Service, capturesDNS bool) []netip.Prefix {
	all := s.VirtualIPs()
	if len(s.Addresses) > 0 {
		return all
	}
	if !capturesDNS {
		return nil
	}
	if f == DualStack {
		return all
	}
	own := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if p.Addr().Is4() == (f == OnlyV4) {
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

// Loopback is the loopback address; with both families, the one of IPv4.
func (f Families) Loopback() netip.Addr {
	if f == OnlyV6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Ports of every proxy's bootstrap. Source: istio.io, "Ports used by Istio".
const (
	healthPort  = 15021
	metricsPort = 15090
)

// IsBootstrapPort says that a listener of the bootstrap has the port on every address.
func IsBootstrapPort(port uint32) bool { return port == healthPort || port == metricsPort }

// OutboundListenPort is where outbound connections are redirected to.
// Source: Istio's MeshConfig.proxyListenPort.
func OutboundListenPort(m *push.Mesh) uint32 {
	if p := m.Config.GetProxyListenPort(); p > 0 {
		return uint32(p)
	}
	return config.DefaultOutboundPort
}

// InboundListenPort is where inbound connections are redirected to.
// Source: Istio's MeshConfig.proxyInboundListenPort.
func InboundListenPort(m *push.Mesh) uint32 {
	if p := m.Config.GetProxyInboundListenPort(); p > 0 {
		return uint32(p)
	}
	return config.DefaultInboundPort
}
