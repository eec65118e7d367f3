package route

import (
	"cmp"
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Pseudo headers of a request.
const (
	methodHeader    = ":method"
	authorityHeader = ":authority"
	schemeHeader    = ":scheme"
)

// routeMatch is what a request must be like; nil: everything.
// Source: istio.io, HTTPMatchRequest: all conditions of one match must hold.
func routeMatch(m *networking.HTTPMatchRequest) *routev3.RouteMatch {
	out := envoy.EveryPath()
	if m == nil {
		return out
	}
	setPath(out, m.Uri)
	if m.IgnoreUriCase {
		out.CaseSensitive = wrapperspb.Bool(false)
	}
	out.Headers = headerMatches(m)
	out.DynamicMetadata = claimMatches(m)
	for _, name := range slices.Sorted(maps.Keys(m.QueryParams)) {
		out.QueryParameters = append(out.QueryParameters, queryMatch(name, m.QueryParams[name]))
	}
	return out
}

// setPath sets the condition on the path, without the query; nil: every path.
func setPath(out *routev3.RouteMatch, uri *networking.StringMatch) {
	switch p := uri.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: p.Exact}
	case *networking.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: p.Prefix}
	case *networking.StringMatch_Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: p.Regex}}
	}
}

// headerMatches are the conditions on headers by name, then those on method, authority and scheme.
// A name that stands for a claim is no header.
func headerMatches(m *networking.HTTPMatchRequest) []*routev3.HeaderMatcher {
	out := make([]*routev3.HeaderMatcher, 0, len(m.Headers)+len(m.WithoutHeaders))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if _, claim := claimPath(name); !claim {
			out = append(out, headerMatch(name, m.Headers[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.WithoutHeaders)) {
		if _, claim := claimPath(name); !claim {
			out = append(out, withoutHeader(name, m.WithoutHeaders[name]))
		}
	}
	slices.SortStableFunc(out, func(a, b *routev3.HeaderMatcher) int { return cmp.Compare(a.Name, b.Name) })
	pseudo := []struct {
		name string
		want *networking.StringMatch
	}{{methodHeader, m.Method}, {authorityHeader, m.Authority}, {schemeHeader, m.Scheme}}
	for _, p := range pseudo {
		if p.want != nil {
			out = append(out, headerMatch(p.name, p.want))
		}
	}
	return out
}

// headerMatch is a condition on the value of a header, or on its presence.
func headerMatch(name string, want *networking.StringMatch) *routev3.HeaderMatcher {
	out := &routev3.HeaderMatcher{Name: name}
	if envoy.Present(want) {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return out
	}
	out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: envoy.StringMatcher(want)}
	return out
}

// withoutHeader is the opposite of headerMatch: a request without the header fulfils it. Envoy does
// not invert what a header that is missing means, so it stands for an empty one, and validation
// refuses conditions that match an empty one, but for ".*", which means that there is a header.
// Source: istio.io, HTTPMatchRequest.withoutHeaders: "If a header is matched with a matching rule
// among withoutHeader, the traffic becomes not matched one."
func withoutHeader(name string, want *networking.StringMatch) *routev3.HeaderMatcher {
	if want.GetRegex() == envoy.Everything {
		want = nil
	}
	out := headerMatch(name, want)
	out.InvertMatch = true
	out.TreatMissingHeaderAsEmpty = !envoy.Present(want)
	return out
}

func queryMatch(name string, want *networking.StringMatch) *routev3.QueryParameterMatcher {
	out := &routev3.QueryParameterMatcher{Name: name}
	if envoy.Present(want) {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
		return out
	}
	out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: envoy.StringMatcher(want)}
	return out
}

// matchesAll says that a match takes every request, so that no later route can be reached.
func matchesAll(m *routev3.RouteMatch) bool {
	if len(m.Headers)+len(m.QueryParameters)+len(m.DynamicMetadata) > 0 {
		return false
	}
	switch p := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		return p.Prefix == "/" || p.Prefix == ""
	case *routev3.RouteMatch_SafeRegex:
		return p.SafeRegex.Regex == envoy.Everything
	default:
		return false
	}
}
