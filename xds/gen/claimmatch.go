package gen

import (
	"maps"
	"slices"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// claimMatches are the conditions of a match on the claims of the request's token, sorted by their
// names.
func claimMatches(m *networking.HTTPMatchRequest) []*matcherv3.MetadataMatcher {
	var out []*matcherv3.MetadataMatcher
	for _, side := range []struct {
		headers map[string]*networking.StringMatch
		invert  bool
	}{{m.Headers, false}, {m.WithoutHeaders, true}} {
		for _, name := range slices.Sorted(maps.Keys(side.headers)) {
			if path, ok := claimPath(name); ok {
				out = append(out, claimMatch(path, side.headers[name], side.invert))
			}
		}
	}
	return out
}

// claimMatch is a condition on one claim: on its text, or on one of its items when it is a list. A
// request without a good token has none.
func claimMatch(path []string, want *networking.StringMatch, invert bool) *matcherv3.MetadataMatcher {
	out := &matcherv3.MetadataMatcher{Filter: jwtFilter,
		Path: []*matcherv3.MetadataMatcher_PathSegment{metadataKey(jwtPayload)}, Invert: invert}
	for _, p := range path {
		out.Path = append(out.Path, metadataKey(p))
	}
	if present(want) {
		out.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}
		return out
	}
	text := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: stringMatcher(want)}}
	item := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
		MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: text},
	}}}
	out.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: []*matcherv3.ValueMatcher{text, item}}}}
	return out
}

func metadataKey(key string) *matcherv3.MetadataMatcher_PathSegment {
	return &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}}
}
