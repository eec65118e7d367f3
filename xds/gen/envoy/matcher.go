package envoy

import (
	"net/netip"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// jwtFilter is the HTTP filter that checks tokens, and the name under which it leaves what they
// say.
const jwtFilter = "envoy.filters.http.jwt_authn"

// JwtPayload is where in its metadata the filter leaves the payload of a good token. Source: Istio,
// whose policies and EnvoyFilters read it there.
const JwtPayload = "payload"

// ExactNames matches one of names.
func ExactNames(names []string) []*tlsv3.SubjectAltNameMatcher {
	out := make([]*tlsv3.SubjectAltNameMatcher, 0, len(names))
	for _, n := range names {
		out = append(out, ExactName(n))
	}
	return out
}

// TextValue is a value that is a text.
func TextValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// ListValue is a value that is a list with such an item in it.
func ListValue(item *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{
		ListMatch: &matcherv3.ListMatcher{MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: item}},
	}}
}

// AnyValue is one of several.
func AnyValue(list ...*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{
		OrMatch: &matcherv3.OrMatcher{ValueMatchers: list},
	}}
}

// Exact matches one text.
func Exact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

// Prefix matches texts that begin with s.
func Prefix(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

// RegexMatch matches whole texts.
func RegexMatch(regex string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}}
}

// MetadataMatch is a value that a filter of Envoy's left under a path.
func MetadataMatch(filter string, path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	m := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, key := range path {
		m.Path = append(m.Path, &matcherv3.MetadataMatcher_PathSegment{
			Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return m
}

// ClaimMatch is a claim of a request's token.
func ClaimMatch(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return MetadataMatch(jwtFilter, append([]string{JwtPayload}, path...), value)
}

// Present says that any value matches: the condition is empty, or the regex "*", which is none.
// Source: istio.io, HTTPMatchRequest.headers; Istio, canBeConvertedToPresentMatch.
func Present(m *networking.StringMatch) bool { return m.GetMatchType() == nil || m.GetRegex() == "*" }

// StringMatcher is a condition as Envoy's. An empty prefix, which Envoy refuses, matches every
// value.
func StringMatcher(m *networking.StringMatch) *matcherv3.StringMatcher {
	switch p := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		if p.Prefix == "" {
			return RegexMatch(Everything)
		}
		return Prefix(p.Prefix)
	case *networking.StringMatch_Regex:
		return RegexMatch(p.Regex)
	default:
		return Exact(m.GetExact())
	}
}

// Everything is the regex for any text.
const Everything = ".*"

// ExactName matches one name of a certificate: a URI, an IP address, an e-mail address or a host.
func ExactName(name string) *tlsv3.SubjectAltNameMatcher {
	kind := tlsv3.SubjectAltNameMatcher_DNS
	switch _, err := netip.ParseAddr(name); {
	case strings.Contains(name, "://"):
		kind = tlsv3.SubjectAltNameMatcher_URI
	case err == nil:
		kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	case strings.Contains(name, "@"):
		kind = tlsv3.SubjectAltNameMatcher_EMAIL
	}
	return &tlsv3.SubjectAltNameMatcher{SanType: kind,
		Matcher: Exact(name)}
}
