package route

import (
	"maps"
	"slices"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
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
// request without a valid token has none.
func claimMatch(path []string, want *networking.StringMatch, invert bool) *matcherv3.MetadataMatcher {
	value := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}
	if !envoy.Present(want) {
		text := envoy.TextValue(envoy.StringMatcher(want))
		value = envoy.AnyValue(text, envoy.ListValue(text))
	}
	out := envoy.ClaimMatch(path, value)
	out.Invert = invert
	return out
}

// claimPrefix begins the names of header matches that ask for a claim of the request's token.
// Source: istio.io, "JWT claim based routing".
const claimPrefix = "@request.auth.claims"

// claimPath is the path of a claim within a token by the name of a header match, and whether it is
// one. Names are separated by dots, or are each in brackets, so that they may hold dots.
func claimPath(header string) ([]string, bool) {
	rest, ok := strings.CutPrefix(header, claimPrefix)
	switch {
	case !ok || len(rest) < 2:
		return nil, false
	case rest[0] == '.':
		return strings.Split(rest[1:], "."), true
	case rest[0] == '[' && rest[len(rest)-1] == ']':
		return strings.Split(rest[1:len(rest)-1], "]["), true
	}
	return nil, false
}
