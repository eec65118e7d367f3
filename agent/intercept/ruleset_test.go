package intercept

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/goldentest"
)

// Each file of testdata/*.rules is a whole ruleset, which the kernel takes.
func TestRender(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"default": {Settings: Default(), DNSPort: 15053, ControlPlane: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.5:15012")}},
		"everything": {
			Settings: Settings{
				IncludeOutboundIPRanges: []string{"10.0.0.0/8", "192.168.7.7", "fd00::/8"},
				ExcludeOutboundIPRanges: []string{"10.99.0.0/16", "fd99::/16"},
				ExcludeOutboundPorts:    []string{"25", "9000-9099"},
				IncludeInboundPorts:     []string{"80", "8000-8999"},
				ExcludeInboundPorts:     []string{"22", "8081"},
				ExcludeUsers:            []string{"nobody", "990"},
			},
			User: "daemon", Group: "daemon", DNSPort: 53053,
			ControlPlane: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.5:15012"),
				netip.MustParseAddrPort("[fd00::5]:443")},
		},
		"ipv4-only": {Settings: Settings{IncludeOutboundIPRanges: []string{"10.0.0.0/8"},
			IncludeInboundPorts: []string{"*"}}, User: "1", Group: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.Render()
			if err != nil {
				t.Fatal(err)
			}
			goldentest.Compare(t, filepath.Join("testdata", name+".rules"), got)
			if c.User == "" || os.Geteuid() != 0 {
				return // the kernel takes names of users that exist, from root
			}
			if _, err := nft(t.Context(), got, "-c", "-f", "-"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings Settings
		want     []string
	}{
		"default": {Default(), nil},
		"good": {Settings{
			IncludeOutboundIPRanges: []string{"*"}, ExcludeOutboundIPRanges: []string{"10.0.0.7", "::1",
				"fd00::/8"}, IncludeInboundPorts: []string{"*"},
			ExcludeInboundPorts: []string{"1", "1-65535"}, ExcludeUsers: []string{"bind",
				"0"},
		}, nil},
		"ranges": {
			Settings{IncludeOutboundIPRanges: []string{"10.0.0.0/33"},
				ExcludeOutboundIPRanges: []string{"*", "fe80::1%eth0", "::ffff:10.0.0.0/104"}},
			[]string{"includeOutboundIPRanges", "excludeOutboundIPRanges", "excludeOutboundIPRanges",
				"excludeOutboundIPRanges"},
		},
		"ports": {
			Settings{ExcludeOutboundPorts: []string{"0", "https"}, IncludeInboundPorts: []string{"9-8"},
				ExcludeInboundPorts: []string{"*", "65536"}},
			[]string{"excludeOutboundPorts", "excludeOutboundPorts", "includeInboundPorts", "excludeInboundPorts",
				"excludeInboundPorts"},
		},
		"users": {Settings{ExcludeUsers: []string{"", "a b", `a"`}}, []string{"excludeUsers", "excludeUsers",
			"excludeUsers"}},
	} {
		var got []string
		tc.settings.Validate(func(field, _ string, _ ...any) { got = append(got, field) })
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: wrong are %q, want %q", name, got, tc.want)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), "", filepath.Join(t.TempDir(), "nft"))
	if err == nil || !strings.HasPrefix(err.Error(), "nft is missing: install the package nftables") {
		t.Errorf("got %v", err)
	}
}

// Of several control planes one whose name does not resolve is left out.
func TestResolve(t *testing.T) {
	t.Parallel()
	got, err := resolve(t.Context(), []string{"a..b:15012", "127.0.0.1:15013"})
	if want := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:15013")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := resolve(t.Context(), []string{"a..b:15012"}); err == nil {
		t.Error("no name resolves: no error")
	}
}
