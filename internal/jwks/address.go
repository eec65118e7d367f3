package jwks

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrAddress is why an address is not asked.
var ErrAddress = errors.New("the control plane fetches nothing from this address for users")

// metadata are addresses at which clouds tell a machine its secrets, beyond the link-local ones.
func metadata() []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{100, 100, 100, 200}), // Alibaba
		netip.AddrFrom4([4]byte{168, 63, 129, 16}),   // Azure
		netip.AddrFrom4([4]byte{192, 0, 0, 192}),     // Oracle
		netip.MustParseAddr("fd00:ec2::254"),         // AWS
		netip.MustParseAddr("fd20:ce::254"),          // Google
	}
}

// checkAddress says why nothing may be fetched from a. allow are ranges that an operator opened.
func checkAddress(a netip.Addr, allow []netip.Prefix) error {
	a = a.WithZone("").Unmap()
	for _, p := range allow {
		if p.Contains(a) {
			return nil
		}
	}
	what := ""
	switch {
	case a.IsLoopback():
		what = "loopback"
	case a.IsLinkLocalUnicast():
		what = "link-local"
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0: // Linux takes these for loopback
		what = "unspecified"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		what = "multicast or broadcast"
	}
	for _, m := range metadata() {
		if a == m {
			what = "a cloud's metadata service"
		}
	}
	if what != "" {
		return fmt.Errorf("%w: %s is %s", ErrAddress, a, what)
	}
	if inner, ok := embedded(a); ok {
		if err := checkAddress(inner, allow); err != nil {
			return fmt.Errorf("%s leads to another address: %w", a, err)
		}
	}
	return nil
}

// embedded is the IPv4 address that a gateway would send packets for a to: NAT64 (RFC 6052, 8215),
// 6to4 (RFC 3056) and the old form of IPv4 in IPv6 (RFC 4291, 2.5.5.1).
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	tail := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("64:ff9b:1::/48").Contains(a),
		netip.MustParsePrefix("::/96").Contains(a):
		return tail, true
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}
