package xds

import (
	"net/netip"
	"testing"
)

// A workload is registered where others reach it: an address of its own machine alone counts for its own machine alone.
func TestMayListen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		at, from string
		ok       bool
	}{
		"elsewhere":                   {"10.0.0.1", "10.0.0.2", true},
		"its own":                     {"10.0.0.1", "10.0.0.1", true},
		"loopback, from here":         {"127.0.0.2", "127.0.0.1", true},
		"loopback, from elsewhere":    {"127.0.0.1", "10.0.0.1", false},
		"loopback, from nobody knows": {"::1", "", false},
		"unspecified":                 {"0.0.0.0", "127.0.0.1", false},
		"multicast":                   {"224.0.0.1", "10.0.0.1", false},
	} {
		from, _ := netip.ParseAddr(tc.from) // or none
		if err := mayListen(netip.MustParseAddr(tc.at), from); (err == nil) != tc.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
