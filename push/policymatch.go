package push

import (
	"net/netip"
	"strconv"
	"strings"
)

// The values of policies, as they are compared with what is known of a call. Source: istio.io, AuthorizationPolicy.

// matchText says whether s is what v says: "*" is anything but nothing, "*x" and "x*" are ends and beginnings.
func matchText(v, s string) bool {
	switch {
	case v == "*":
		return s != ""
	case strings.HasPrefix(v, "*"):
		return strings.HasSuffix(s, v[1:])
	case strings.HasSuffix(v, "*"):
		return strings.HasPrefix(s, v[:len(v)-1])
	default:
		return s == v
	}
}

// matchItem says whether one of the items of list, between commas, is what v says.
func matchItem(v, list string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if matchText(v, strings.Trim(item, " \t")) {
			return true
		}
	}
	return false
}

// isName says that the stars of v stand where they mean something.
func isName(v string) bool {
	stars := strings.Count(v, "*")
	return v != "" && (stars == 0 || stars == 1 && (v[0] == '*' || v[len(v)-1] == '*'))
}

// matchStars says whether s is v, in which each star stands for any text.
func matchStars(v, s string) bool {
	first, rest, ok := strings.Cut(v, "*")
	if !ok {
		return s == v
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	for i := len(first); i <= len(s); i++ {
		if matchStars(rest, s[i:]) {
			return true
		}
	}
	return false
}

// matchHost says whether a host is what v says, in any case. wide: one without a port stands for all
// ports.
func matchHost(v, host string, wide bool) bool {
	v, host = strings.ToLower(v), strings.ToLower(host)
	if matchText(v, host) || !wide || strings.HasSuffix(v, "*") || namesPort(v) {
		return matchText(v, host)
	}
	// every way of taking a port off, for an address in brackets has colons of its own
	for i := range len(host) {
		if host[i] == ':' && matchText(v, host[:i]) {
			return true
		}
	}
	return false
}

// namesPort says that a host ends with a port.
func namesPort(host string) bool {
	_, port, ok := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
	return ok && port != ""
}

// matchSubnet says whether an address is the one of v, or in its block; not ok when v is neither.
func matchSubnet(v string, a netip.Addr) (t truth, ok bool) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		one, err := netip.ParseAddr(v)
		if err != nil || one.Zone() != "" {
			return no, false
		}
		p = netip.PrefixFrom(one, one.BitLen())
	}
	if p.Addr().Is4In6() {
		return no, false
	}
	if !a.IsValid() {
		return unsure, true
	}
	return truthOf(p.Contains(a)), true
}

// matchPort says whether a port is that of v; not ok when v is none.
func matchPort(v string, port uint32) (t truth, ok bool) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n == 0 {
		return no, false
	}
	if port == 0 {
		return unsure, true
	}
	return truthOf(uint32(n) == port), true
}
