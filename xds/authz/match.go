package authz

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// matchText is Envoy's StringMatcher. Regular expressions match the whole text.
func matchText(m *matcherv3.StringMatcher, s string) truth {
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
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

// matchKnown is matchText for a text that may be unknown.
func matchKnown(m *matcherv3.StringMatcher, s string) truth {
	if s == "" {
		return unknown
	}
	return matchText(m, s)
}

// matchAny says whether one of values matches.
func matchAny(m *matcherv3.StringMatcher, values []string) truth {
	out := no
	for _, v := range values {
		out = max(out, matchText(m, v))
	}
	return out
}

// header is Envoy's HeaderMatcher: one value that matches is enough.
func (r Request) header(m *routev3.HeaderMatcher) truth {
	values, known := r.Headers[m.Name], r.Headers != nil
	switch m.Name {
	case ":authority":
		values, known = []string{r.Host}, r.Host != ""
	case ":method":
		values, known = []string{r.Method}, r.Method != ""
	}
	if !known {
		return unknown
	}
	out := truthOf(len(values) > 0)
	if !m.GetPresentMatch() {
		out = matchAny(m.GetStringMatch(), values)
	}
	if m.InvertMatch {
		return out.not()
	}
	return out
}

// urlPath matches the path without its query.
func (r Request) urlPath(match func(path string) truth) truth {
	if r.Path == "" {
		return unknown
	}
	path := r.Path
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	return match(path)
}

// matchTemplate matches a path with a URI template of Envoy: * is one segment, ** any number of
// them.
func matchTemplate(e *corev3.TypedExtensionConfig, path string) truth {
	c := &uritemplatev3.UriTemplateMatchConfig{}
	if err := e.GetTypedConfig().UnmarshalTo(c); err != nil {
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

// claim matches what the check of tokens leaves for later filters. What other filters leave is
// unknown.
func (r Request) claim(m *matcherv3.MetadataMatcher) truth {
	var path []string
	for _, p := range m.GetPath() {
		path = append(path, p.GetKey())
	}
	if r.Claims == nil || m.GetFilter() != "envoy.filters.http.jwt_authn" || len(path) < 2 {
		return unknown
	}
	return matchValue(m.GetValue(), r.Claims[strings.Join(path[1:], "][")])
}

// matchValue matches a claim: one value is a text or a list of one, several are a list.
func matchValue(m *matcherv3.ValueMatcher, values []string) truth {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		return matchAny(p.StringMatch, values[:min(len(values), 1)])
	case *matcherv3.ValueMatcher_ListMatch:
		out := no
		for _, v := range values {
			out = max(out, matchValue(p.ListMatch.GetOneOf(), []string{v}))
		}
		return out
	case *matcherv3.ValueMatcher_OrMatch:
		out := no
		for _, o := range p.OrMatch.GetValueMatchers() {
			out = max(out, matchValue(o, values))
		}
		return out
	case *matcherv3.ValueMatcher_PresentMatch:
		return truthOf(len(values) > 0 == p.PresentMatch)
	case *matcherv3.ValueMatcher_BoolMatch:
		return truthOf(slices.Contains(values, strconv.FormatBool(p.BoolMatch)))
	case *matcherv3.ValueMatcher_DoubleMatch:
		return truthOf(slices.ContainsFunc(values, func(v string) bool {
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && n == p.DoubleMatch.GetExact()
		}))
	default:
		return unknown
	}
}
