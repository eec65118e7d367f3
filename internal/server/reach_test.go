package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// What a join command says has to lead other machines here, or come with a note.
func TestReach(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	names := map[string]string{"mesh.example": "10.0.0.5", "debian.example": "127.0.1.1", "moved.example": "10.9.9.9",
		"vm": "10.0.0.5"}
	tests := map[string]struct {
		advertised     []string
		listener, name string
		addresses      []netip.Addr
		outgoing       string // the address towards other networks
		want, note     string
	}{
		"advertised":            {advertised: []string{"mesh.example:443", "10.0.0.5:443"}, listener: "[::]:15012", want: "mesh.example:443,10.0.0.5:443"},
		"advertised loopback":   {advertised: []string{"localhost:443"}, listener: "[::]:15012", want: "localhost:443", note: "from this machine alone"},
		"one address":           {listener: "10.0.0.5:15012", want: "10.0.0.5:15012"},
		"one of IPv6":           {listener: "[fd00::2]:15012", want: "[fd00::2]:15012"},
		"loopback":              {listener: "127.0.0.1:15012", want: "127.0.0.1:15012", note: "from this machine alone"},
		"a name that leads":     {listener: "[::]:15012", name: "mesh.example", addresses: []netip.Addr{addr("10.0.0.5")}, want: "mesh.example:15012"},
		"a name of loopback":    {listener: "[::]:15012", name: "debian.example", addresses: []netip.Addr{addr("10.0.0.5")}, want: "10.0.0.5:15012"},
		"a name that leads off": {listener: "[::]:15012", name: "moved.example", addresses: []netip.Addr{addr("10.0.0.5")}, want: "10.0.0.5:15012"},
		"a short name":          {listener: "[::]:15012", name: "vm", addresses: []netip.Addr{addr("10.0.0.5")}, want: "10.0.0.5:15012"},
		"an unknown name":       {listener: "[::]:15012", name: "nowhere.example", addresses: []netip.Addr{addr("fd00::2")}, want: "[fd00::2]:15012"},
		"several": {listener: "[::]:15012", addresses: []netip.Addr{addr("10.0.0.5"), addr("172.17.0.1"), addr("fd00::2")}, outgoing: "172.17.0.1",
			want: "172.17.0.1:15012", note: "10.0.0.5, fd00::2 too"},
		"IPv4 alone":     {listener: "0.0.0.0:15012", addresses: []netip.Addr{addr("10.0.0.5"), addr("fd00::2")}, want: "10.0.0.5:15012"},
		"no network":     {listener: "[::]:15012", name: "vm", want: "vm:15012"},
		"nothing at all": {listener: "[::]:15012", want: "localhost:15012", note: "from this machine alone"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.listener))
			m := machine{name: tc.name, addresses: tc.addresses,
				lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
					if a, ok := names[name]; ok {
						return []netip.Addr{addr(a)}, nil
					}
					return nil, errors.New("no such host")
				},
				outgoing: func(network string) netip.Addr {
					a, _ := netip.ParseAddr(tc.outgoing)
					if network != "udp4" {
						return netip.Addr{}
					}
					return a
				}}
			got := findReach(t.Context(), tc.advertised, listener, m)
			if notes := strings.Join(got.notes, "\n"); strings.Join(got.addresses, ",") != tc.want ||
				(notes == "") != (tc.note == "") || !strings.Contains(notes, tc.note) {
				t.Errorf("got %+v, want %s with a note of %q", got, tc.want, tc.note)
			}
		})
	}
}

// Without a network or with one, what is said of this machine is an address.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	l := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[::]:15012"))
	r := findReach(t.Context(), nil, l, thisMachine())
	if host, port, err := net.SplitHostPort(r.addresses[0]); err != nil || host == "" || port != "15012" {
		t.Errorf("got %+v, %v", r, err)
	}
}
