package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// reach is where agents reach this control plane.
type reach struct {
	// addresses are HOST:PORT, as join commands name them: one, or those of the setting
	// xds.advertise.
	addresses []string
	// notes warn an operator about these addresses.
	notes []string
	// own is the address of this machine itself, whatever is advertised.
	own string
}

// findReach returns where agents reach a listener. outgoing returns this machine's address towards
// other networks of a kind (udp4, udp6); an invalid one if it has none.
func findReach(advertised []string, listener net.Addr, outgoing func(network string) netip.Addr) reach {
	r := reach{addresses: advertised, own: listener.String()}
	host, port, err := net.SplitHostPort(listener.String())
	if ip, _ := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		at := outgoing("udp4")
		if !at.IsValid() && ip.Is6() {
			at = outgoing("udp6")
		}
		own := settings.MachineName()
		if at.IsValid() {
			own = at.String()
		}
		r.own = net.JoinHostPort(own, port)
		if len(advertised) == 0 {
			r.notes = append(r.notes, fmt.Sprintf(
				"xds.advertise is not set: machines are given %s. Set it if they reach this one by another name or address.",
				r.own))
		}
	}
	if len(advertised) == 0 {
		r.addresses = []string{r.own}
	}
	for _, address := range r.addresses {
		if loopback(address) {
			r.notes = append(r.notes, fmt.Sprintf(
				"only this machine reaches %s: set xds.address and xds.advertise for others.", address))
		}
	}
	return r
}

// outgoing asks the kernel by which address it would send to another network. Nothing is sent.
func outgoing(network string) netip.Addr {
	// addresses for documentation: RFC 5737, RFC 3849
	far := map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"}
	c, err := net.Dial(network, far[network])
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }() // nothing was sent
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// loopback reports whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == settings.Localhost || net.ParseIP(host).IsLoopback())
}
