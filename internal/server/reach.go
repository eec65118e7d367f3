package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// reach is where agents reach this control plane.
type reach struct {
	addresses []string // HOST:PORT, for join commands
	notes     []string // hints for operators who pass the addresses on
	own       string   // the address of this machine, whatever is advertised
}

// findReach returns where agents reach a listener: the advertised addresses, or else its own. If it
// listens on all addresses, its own is that from which this machine sends to other networks.
func findReach(advertised []string, listener net.Addr, outgoing func(network string) netip.Addr) reach {
	r := reach{own: ownAddress(listener, outgoing)}
	if r.addresses = advertised; len(advertised) == 0 {
		r.addresses = []string{r.own}
	}
	for _, address := range r.addresses {
		host, _, err := net.SplitHostPort(address)
		if ip, _ := netip.ParseAddr(host); err == nil && (host == settings.Localhost || ip.IsLoopback()) {
			r.notes = append(r.notes, fmt.Sprintf(
				"Only this machine reaches %s. For other machines set xds.address and xds.advertise.", address))
		}
	}
	return r
}

func ownAddress(listener net.Addr, outgoing func(network string) netip.Addr) string {
	host, port, err := net.SplitHostPort(listener.String())
	ip, _ := netip.ParseAddr(host)
	if err != nil || !ip.IsUnspecified() {
		return listener.String()
	}
	networks := []string{"udp4", "udp6"}
	if ip.Is4() {
		networks = networks[:1]
	}
	for _, network := range networks {
		if a := outgoing(network); a.IsValid() {
			return net.JoinHostPort(a.String(), port)
		}
	}
	return net.JoinHostPort(settings.Localhost, port)
}

// outgoing returns the address from which the kernel sends to another network; invalid if it has no
// route. Nothing is sent.
func outgoing(network string) netip.Addr {
	// addresses for documentation: RFC 5737, RFC 3849
	remote := map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"}
	c, err := net.Dial(network, remote[network])
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }() // nothing was sent
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
