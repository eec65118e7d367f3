package intercept

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Settings are the block "interception" of the agent's settings. The names are those of Istio's
// annotations traffic.sidecar.istio.io/….
type Settings struct {
	// IncludeOutboundIPRanges are the intercepted destinations. Empty or "*": all.
	IncludeOutboundIPRanges []string `yaml:"includeOutboundIPRanges"`
	ExcludeOutboundIPRanges []string `yaml:"excludeOutboundIPRanges"`
	// ExcludeOutboundPorts are ports and ranges: "25", "8000-8099".
	ExcludeOutboundPorts []string `yaml:"excludeOutboundPorts"`
	// IncludeInboundPorts are the intercepted ports of this machine. Empty or "*": all.
	IncludeInboundPorts []string `yaml:"includeInboundPorts"`
	ExcludeInboundPorts []string `yaml:"excludeInboundPorts"`
	// ExcludeUsers are users, by name or number, whose connections and queries are not intercepted.
	ExcludeUsers []string `yaml:"excludeUsers"`
}

// Default returns the default settings.
func Default() Settings {
	return Settings{
		ExcludeOutboundIPRanges: []string{"169.254.0.0/16"}, // metadata services of clouds
		ExcludeInboundPorts:     []string{"22"},
	}
}

// Validate calls fail for each field that is wrong, with the field's name.
func (s *Settings) Validate(fail func(field, format string, args ...any)) {
	ranges := func(field string, list []string) {
		for _, r := range list {
			if _, ok := parseRange(r); !ok {
				fail(field, "%q is not an address range; want one such as 10.0.0.0/8, 10.0.0.7 or fd00::/8", r)
			}
		}
	}
	ranges("includeOutboundIPRanges", withoutAll(s.IncludeOutboundIPRanges))
	ranges("excludeOutboundIPRanges", s.ExcludeOutboundIPRanges)
	ports := func(field string, list []string) {
		for _, p := range list {
			if !validPorts(p) {
				fail(field, "%q is not a port; want one such as 8080, or a range such as 8000-8099", p)
			}
		}
	}
	ports("excludeOutboundPorts", s.ExcludeOutboundPorts)
	ports("includeInboundPorts", withoutAll(s.IncludeInboundPorts))
	ports("excludeInboundPorts", s.ExcludeInboundPorts)
	for _, u := range s.ExcludeUsers {
		if u == "" || strings.ContainsAny(u, " \t\n\"\\{},") {
			fail("excludeUsers", "%q is not the name or number of a user", u)
		}
	}
}

// withoutAll returns the list, or nil when it means everything.
func withoutAll(list []string) []string {
	if slices.Contains(list, "*") {
		return nil
	}
	return list
}

func parseRange(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil && !p.Addr().Is4In6()
}

func validPorts(s string) bool {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	from, err1 := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	return err1 == nil && err2 == nil && 0 < from && from <= to
}
