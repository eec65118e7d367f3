package server

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// A join command has an address by which other machines reach this one, or a note says so.
func TestReach(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		advertised     []string
		listener       string
		ipv4, ipv6     string // outgoing addresses
		want, own      string
		loopbackNotice bool
	}{
		"advertised":          {advertised: []string{"mesh.example:443", "10.0.0.5:443"}, listener: "10.0.0.5:15012", want: "mesh.example:443,10.0.0.5:443", own: "10.0.0.5:15012"},
		"advertised loopback": {advertised: []string{"localhost:443"}, listener: "10.0.0.5:15012", want: "localhost:443", own: "10.0.0.5:15012", loopbackNotice: true},
		"one address":         {listener: "[fd00::2]:15012", want: "[fd00::2]:15012", own: "[fd00::2]:15012"},
		"loopback":            {listener: "127.0.0.1:15012", want: "127.0.0.1:15012", own: "127.0.0.1:15012", loopbackNotice: true},
		"all":                 {listener: "[::]:15012", ipv4: "10.0.0.5", ipv6: "fd00::2", want: "10.0.0.5:15012", own: "10.0.0.5:15012"},
		"all, IPv6 only":      {listener: "[::]:15012", ipv6: "fd00::2", want: "[fd00::2]:15012", own: "[fd00::2]:15012"},
		"all of IPv4":         {listener: "0.0.0.0:15012", ipv6: "fd00::2", want: "localhost:15012", own: "localhost:15012", loopbackNotice: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outgoing := func(network string) netip.Addr {
				a, _ := netip.ParseAddr(map[string]string{"udp4": tc.ipv4, "udp6": tc.ipv6}[network])
				return a
			}
			got := findReach(tc.advertised, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.listener)), outgoing)
			if addresses := strings.Join(got.addresses, ","); addresses != tc.want || got.own != tc.own {
				t.Errorf("got %s, own %s; want %s, %s", addresses, got.own, tc.want, tc.own)
			}
			if (len(got.notes) > 0) != tc.loopbackNotice {
				t.Errorf("notes %q", got.notes)
			}
		})
	}
}
