package jwks

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrAddress means that the control plane fetches nothing from an address.
var ErrAddress = errors.New("the control plane fetches nothing from this address for users")

// forbidden are the networks from which nothing is fetched, with what they are.
func forbidden() [][]string {
	return [][]string{
		{"loopback", "127.0.0.0/8", "::1/128"},
		{"link-local", "169.254.0.0/16", "fe80::/10"},
		{"unspecified", "0.0.0.0/8", "::/128"}, // Linux takes these for loopback
		{"multicast or broadcast", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8"},
		{
			"a cloud's metadata service", // those that are not link-local
			"100.100.100.200/32",         // Alibaba
			"168.63.129.16/32",           // Azure
			"192.0.0.192/32",             // Oracle
			"fd00:ec2::254/128",          // AWS
			"fd20:ce::254/128",           // Google
		},
		// Gateways send packets for these to an IPv4 address, which may be any of the above: NAT64 (RFC
		// 6052, RFC 8215), IPv4-compatible addresses (RFC 4291), and 6to4 (RFC 3056).
		{"an IPv4 address in IPv6", "64:ff9b::/96", "64:ff9b:1::/48", "::/96", "2002::/16"},
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
	for _, kind := range forbidden() {
		for _, n := range kind[1:] {
			if netip.MustParsePrefix(n).Contains(a) {
				return fmt.Errorf("%w: %s is %s", ErrAddress, a, kind[0])
			}
		}
	}
	return nil
}
