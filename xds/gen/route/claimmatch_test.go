package route

import (
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
)

// A header match names a claim by dots, or by brackets when names hold dots; anything else is a
// header.
func TestClaimPath(t *testing.T) {
	t.Parallel()
	for header, want := range map[string][]string{
		"@request.auth.claims.sub":                       {"sub"},
		"@request.auth.claims.a.b":                       {"a", "b"},
		"@request.auth.claims[a]":                        {"a"},
		"@request.auth.claims[https://example.com/x][b]": {"https://example.com/x", "b"},
		"@request.auth.claims":                           nil,
		"@request.auth.claims.":                          nil,
		"@request.auth.claims[a":                         nil,
		"x-request.auth.claims.sub":                      nil,
	} {
		if got, _ := claimPath(header); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", header, got, want)
		}
	}
}

// Claims are matched as metadata, never as headers that a client could send.
func TestClaimMatch(t *testing.T) {
	t.Parallel()
	exact := &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: "admin"}}
	m := routeMatch(&networking.HTTPMatchRequest{
		Headers:        map[string]*networking.StringMatch{"@request.auth.claims.groups": exact, "x-a": exact},
		WithoutHeaders: map[string]*networking.StringMatch{"@request.auth.claims.guest": {}},
	})
	if len(m.Headers) != 1 || m.Headers[0].Name != "x-a" {
		t.Errorf("headers are %v", m.Headers)
	}
	if len(m.DynamicMetadata) != 2 || m.DynamicMetadata[0].Invert || !m.DynamicMetadata[1].Invert ||
		!m.DynamicMetadata[1].Value.GetPresentMatch() {
		t.Fatalf("claims are %v", m.DynamicMetadata)
	}
	either := m.DynamicMetadata[0].Value.GetOrMatch().GetValueMatchers()
	if len(either) != 2 || either[0].GetStringMatch().GetExact() != "admin" ||
		either[1].GetListMatch().GetOneOf().GetStringMatch().GetExact() != "admin" {
		t.Errorf("the value is %v", either)
	}
	if matchesAll(m) {
		t.Error("a match on claims is taken for one of every request")
	}
}
