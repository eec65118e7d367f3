package jwks

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrAddress means that the control plane fetches nothing from an address.
var ErrAddress = errors.New("the control plane fetches nothing from this address for users")

// forbidden are the networks from which nothing is fetched, by what they are.
func forbidden() map[string][]string {
	return map[string][]string{
		"loopback":               {"127.0.0.0/8", "::1/128"},
		"link-local":             {"169.254.0.0/16", "fe80::/10"},
		"unspecified":            {"0.0.0.0/8", "::/128"}, // Linux takes these for loopback
		"multicast or broadcast": {"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"},
		"a cloud's metadata service": { // besides link-local ones
			"100.100.100.200/32", // Alibaba
			"168.63.129.16/32",   // Azure
			"192.0.0.192/32",     // Oracle
			"fd00:ec2::254/128",  // AWS
			"fd20:ce::254/128",   // Google
		},
	}
}

// embedding are IPv6 networks whose addresses contain an IPv4 address, to which a gateway would send
// the packets, and the byte at which that begins.
func embedding() map[string]int {
	return map[string]int{
		"64:ff9b::/96":   12, // NAT64, RFC 6052
		"64:ff9b:1::/48": 12, // NAT64, RFC 8215
		"::/96":          12, // RFC 4291, section 2.5.5.1
		"2002::/16":      2,  // 6to4, RFC 3056
	}
}

// checkAddress returns why nothing is fetched from an address. allow are networks that an operator
// allows.
func checkAddress(a netip.Addr, allow []netip.Prefix) error {
	a = a.WithZone("").Unmap()
	for _, p := range allow {
		if p.Contains(a) {
			return nil
		}
	}
	for what, networks := range forbidden() {
		for _, n := range networks {
			if netip.MustParsePrefix(n).Contains(a) {
				return fmt.Errorf("%w: %s is %s", ErrAddress, a, what)
			}
		}
	}
	for n, begin := range embedding() {
		if !netip.MustParsePrefix(n).Contains(a) {
			continue
		}
		b := a.As16()
		if err := checkAddress(netip.AddrFrom4([4]byte(b[begin:begin+4])), allow); err != nil {
			return fmt.Errorf("%s leads to another address: %w", a, err)
		}
	}
	return nil
}
