package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// AllowedAddresses are those of AllowAddressesAnnotation. There are none if it is unset or invalid.
func AllowedAddresses(group *Object) []netip.Prefix {
	out, _ := parseRanges(group.Annotations[AllowAddressesAnnotation])
	return out
}

// parseRanges parses addresses and CIDR ranges, separated by commas; why says what is wrong.
func parseRanges(list string) (out []netip.Prefix, why string) {
	if list == "" {
		return nil, ""
	}
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			a = a.Unmap()
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Sprintf("%s is not an address or a range: write a list such as 192.0.2.7, 10.1.0.0/16",
				quote(text))
		}
		if p != p.Masked() {
			return nil, fmt.Sprintf("the range %s has host bits set: write %s", quote(text), p.Masked())
		}
		out = append(out, p)
	}
	return out, ""
}
