package server

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// What a join command names leads other machines here, or comes with a note.
func TestReach(t *testing.T) {
	t.Parallel()
	const localOnly, notSet = "only this machine reaches", "xds.advertise is not set"
	tests := map[string]struct {
		advertised []string
		listener   string
		udp4, udp6 string
		want       []string
		own        string // empty: want[0]
		note       string
	}{
		"advertised": {advertised: []string{"mesh.example:443", "10.0.0.5:443"}, listener: "[::]:15012", udp4: "10.0.0.7",
			want: []string{"mesh.example:443", "10.0.0.5:443"}, own: "10.0.0.7:15012"},
		"advertised loopback": {advertised: []string{"localhost:443"}, listener: "10.0.0.5:15012",
			want: []string{"localhost:443"}, own: "10.0.0.5:15012", note: localOnly},
		"one address":   {listener: "10.0.0.5:15012", want: []string{"10.0.0.5:15012"}},
		"one of IPv6":   {listener: "[fd00::2]:15012", want: []string{"[fd00::2]:15012"}},
		"loopback":      {listener: "127.0.0.1:15012", want: []string{"127.0.0.1:15012"}, note: localOnly},
		"every address": {listener: "[::]:15012", udp4: "10.0.0.5", udp6: "fd00::2", want: []string{"10.0.0.5:15012"}, note: notSet},
		"only IPv6":     {listener: "[::]:15012", udp6: "fd00::2", want: []string{"[fd00::2]:15012"}, note: notSet},
		"only listens on IPv4": {listener: "0.0.0.0:15012", udp6: "fd00::2",
			want: []string{net.JoinHostPort(settings.MachineName(), "15012")}, note: notSet},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outgoing := func(network string) netip.Addr {
				a, _ := netip.ParseAddr(map[string]string{"udp4": tc.udp4, "udp6": tc.udp6}[network])
				return a
			}
			got := findReach(tc.advertised, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.listener)), outgoing)
			own := tc.own
			if own == "" {
				own = tc.want[0]
			}
			if notes := strings.Join(got.notes, "\n"); !slices.Equal(got.addresses, tc.want) || got.own != own ||
				(notes == "") != (tc.note == "") || !strings.Contains(notes, tc.note) {
				t.Errorf("got %+v, want %v, own %s, a note of %q", got, tc.want, own, tc.note)
			}
		})
	}
}
