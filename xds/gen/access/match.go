package access

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// textMatch translates a value of a policy: "*" is any text but none, "*x" ends with x, "x*" begins
// with x, all else is the text itself; nil for no text.
func textMatch(v string) *matcherv3.StringMatcher {
	switch {
	case v == "":
		return nil
	case v == "*":
		return envoy.RegexMatch(".+")
	case strings.HasPrefix(v, "*"):
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: v[1:]}}
	case strings.HasSuffix(v, "*"):
		return envoy.Prefix(v[:len(v)-1])
	default:
		return envoy.Exact(v)
	}
}

// nameMatch is textMatch for what never has a star of its own: one in the middle was not
// understood.
func nameMatch(v string) *matcherv3.StringMatcher {
	if strings.Contains(strings.TrimSuffix(strings.TrimPrefix(v, "*"), "*"), "*") || len(v) > 1 && v[0] == '*' &&
		v[len(v)-1] == '*' {
		return nil
	}
	return textMatch(v)
}

// policyHeader translates a value that a header is to have.
func policyHeader(name, v string, match *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	if match == nil {
		return nil
	}
	m := &routev3.HeaderMatcher{Name: name}
	if v == "*" {
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
	} else {
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: match}
	}
	return m
}

// hostMatch translates a host, in any case. wide says that one without a port stands for every
// port. Envoy has stripped a trailing dot, and badHostFilter has refused invalid hosts.
func hostMatch(v string, wide bool) *matcherv3.StringMatcher {
	m := nameMatch(v)
	if m == nil || v == "*" {
		return m
	}
	host, isSuffix := strings.CutPrefix(v, "*")
	if !wide || strings.HasSuffix(v, "*") || hasPort(host) {
		m.IgnoreCase = true
		return m
	}
	regex := "(?i)" + regexp.QuoteMeta(host) + `(:.*)?`
	if isSuffix {
		regex = "(?i).*" + regexp.QuoteMeta(host) + `(:.*)?`
	}
	return envoy.RegexMatch(regex)
}

// hasPort says that a host ends with a port.
func hasPort(host string) bool {
	_, port, ok := strings.Cut(host[strings.LastIndex(host, "]")+1:], ":")
	return ok && port != ""
}

// templateOperators are what path templates have for one segment and for any number of them.
const (
	oneSegment   = "{*}"
	manySegments = "{**}"
)

// pathTemplate translates a path with such operators into Envoy's form; empty when Envoy would
// refuse it: one refused template costs all rules of its filter. Source: istio.io,
// AuthorizationPolicy paths; envoy.extensions.path.match.uri_template.v3.
func pathTemplate(v string) string {
	if !strings.HasPrefix(v, "/") {
		return ""
	}
	segments := strings.Split(v[1:], "/")
	many := false
	for i, s := range segments {
		switch {
		case s == oneSegment && !many:
			segments[i] = "*"
		case s == manySegments && !many:
			segments[i], many = "**", true
		case s == "" && i == len(segments)-1:
		case !isTemplateText(s):
			return ""
		}
	}
	out := "/" + strings.Join(segments, "/")
	if len(out) > config.MaxPolicyTemplate {
		return ""
	}
	return out
}

// isTemplateText says whether Envoy takes a segment of a template as text.
func isTemplateText(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-._~%!$&'()+,;:@", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isPathTemplate says that a path has operators.
func isPathTemplate(v string) bool {
	return strings.Contains(v, oneSegment) || strings.Contains(v, manySegments)
}

// templateMatch is the extension that matches a template.
func templateMatch(template string) *corev3.TypedExtensionConfig {
	return envoy.Extension("envoy.path.match.uri_template.uri_template_matcher",
		&uritemplatev3.UriTemplateMatchConfig{PathTemplate: template})
}

// subnetMatch translates an address or a subnet; nil when it is neither, or IPv4 in the form of
// IPv6, which Envoy compares with no caller's.
func subnetMatch(v string) *corev3.CidrRange {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		a, err := netip.ParseAddr(v)
		if err != nil || a.Zone() != "" {
			return nil
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() {
		return nil
	}
	return envoy.CidrRange(p.Masked())
}

// portNumber reads a port; zero when it is none.
func portNumber(v string) uint32 {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(n)
}
