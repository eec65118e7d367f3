package xds

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// A workload registers the address that its connection comes from, or one that its group allows.
func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allow, at, from string
		want            string // in the error; empty: it may
	}{
		"its own":                     {"", "10.0.0.1", "10.0.0.1", ""},
		"its own, IPv6":               {"", "2001:db8::1", "2001:db8::1", ""},
		"loopback, from here":         {"", "127.0.0.2", "127.0.0.1", ""},
		"elsewhere":                   {"", "10.0.0.1", "10.0.0.2", "add 10.0.0.1 or its range to the annotation ashore.io/allow-addresses of WorkloadGroup shop/web"},
		"elsewhere, from here":        {"", "10.0.0.1", "127.0.0.1", "comes from (127.0.0.1)"},
		"from nobody knows where":     {"", "10.0.0.1", "", "ashore.io/allow-addresses"},
		"an allowed address":          {"192.0.2.7, 10.0.0.1", "10.0.0.1", "10.0.0.2", ""},
		"an allowed range":            {"10.0.0.0/8", "10.0.0.1", "10.0.0.2", ""},
		"an allowed range, IPv6":      {"2001:db8::/64", "2001:db8::1", "10.0.0.2", ""},
		"outside of what is allowed":  {"10.1.0.0/16", "10.0.0.1", "10.0.0.2", "ashore.io/allow-addresses"},
		"loopback, from elsewhere":    {"127.0.0.0/8", "127.0.0.1", "10.0.0.1", "its own machine"},
		"loopback, from nobody knows": {"", "::1", "", "its own machine"},
		"unspecified":                 {"0.0.0.0/0", "0.0.0.0", "127.0.0.1", "cannot be registered"},
		"multicast":                   {"0.0.0.0/0", "224.0.0.1", "10.0.0.1", "cannot be registered"},
		"link-local":                  {"0.0.0.0/0", "169.254.169.254", "169.254.169.254", "cannot be registered"},
		"link-local, IPv6":            {"::/0", "fe80::1", "fe80::1", "cannot be registered"},
	} {
		group := &config.Object{Key: config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "web"},
			Annotations: map[string]string{config.AllowAddressesAnnotation: tc.allow}}
		from, _ := netip.ParseAddr(tc.from) // or none
		err := checkAddress(group, netip.MustParseAddr(tc.at), from)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
