package registry_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/registry"
)

func TestRegistrationName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	for _, tc := range []struct{ group, address, network, want string }{
		{"web", "10.0.0.1", "", "web-10.0.0.1"},
		{"web", "10.0.0.1", "n1", "web-10.0.0.1-n1"},
		{"web", "2001:db8::1", "", "web-2001-db8--1"},
		{"web", "::ffff:10.0.0.1", "", "web-10.0.0.1"},
		{"web", "fe80::1%eth0", "", "web-fe80--1"},
		{long, "10.0.0.1", "n1", strings.Repeat("a", 241) + "-10.0.0.1-n1"},
	} {
		if got := registry.RegistrationName(tc.group, netip.MustParseAddr(tc.address), tc.network); got != tc.want {
			t.Errorf("%s %s %s: %q, want %q", tc.group, tc.address, tc.network, got, tc.want)
		}
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	var got []bool
	for _, s := range []registry.Reported{registry.NotReported, registry.ReportedHealthy, registry.ReportedUnhealthy} {
		got = append(got, registry.Report{State: s}.Healthy(false), registry.Report{State: s}.Healthy(true))
	}
	if want := []bool{true, false, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
