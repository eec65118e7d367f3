package authz

import (
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// matchText is Envoy's StringMatcher. Regular expressions match the whole text. An empty text is
// unknown.
func matchText(m *matcherv3.StringMatcher, s string) truth {
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
	}
	if s == "" {
		return unknown
	}
	s = fold(s)
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return truthOf(s == fold(p.Exact))
	case *matcherv3.StringMatcher_Prefix:
		return truthOf(strings.HasPrefix(s, fold(p.Prefix)))
	case *matcherv3.StringMatcher_Suffix:
		return truthOf(strings.HasSuffix(s, fold(p.Suffix)))
	case *matcherv3.StringMatcher_Contains:
		return truthOf(strings.Contains(s, fold(p.Contains)))
	case *matcherv3.StringMatcher_SafeRegex:
		return matchRegex(p.SafeRegex.GetRegex(), s)
	default:
		return unknown
	}
}

func matchRegex(expr, s string) truth {
	r, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		return unknown
	}
	return truthOf(r.MatchString(s))
}

// header matches a header.
func (r Request) header(m *routev3.HeaderMatcher) result {
	name := strings.ToLower(m.GetName())
	value, about := r.Headers[name], "the header "+name
	switch m.GetName() {
	case ":authority":
		value, about = r.Host, "the host"
	case ":method":
		value, about = r.Method, "the method"
	}
	t := matchText(m.GetStringMatch(), value)
	if value != "" && m.GetPresentMatch() {
		t = yes
	}
	if m.GetInvertMatch() {
		t = t.not()
	}
	return result{t, about}
}

// urlPath is the path without its query.
func (r Request) urlPath() string {
	path, _, _ := strings.Cut(r.Path, "?")
	path, _, _ = strings.Cut(path, "#")
	return path
}

// matchTemplate matches a path with a URI template of Envoy: * is one segment, ** any number of
// them.
func matchTemplate(e *corev3.TypedExtensionConfig, path string) truth {
	c := &uritemplatev3.UriTemplateMatchConfig{}
	if err := e.GetTypedConfig().UnmarshalTo(c); err != nil || path == "" {
		return unknown
	}
	segments := strings.Split(c.PathTemplate, "/")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = "[^/]+"
		case "**":
			segments[i] = ".*"
		default:
			segments[i] = regexp.QuoteMeta(s)
		}
	}
	return matchRegex(strings.Join(segments, "/"), path)
}

// matchSubnet says whether an address, which may be unknown, is in a subnet.
func matchSubnet(c *corev3.CidrRange, a netip.Addr) truth {
	subnet, err := netip.ParseAddr(c.GetAddressPrefix())
	if err != nil || !a.IsValid() {
		return unknown
	}
	return truthOf(netip.PrefixFrom(subnet, int(c.GetPrefixLen().GetValue())).Contains(a))
}
