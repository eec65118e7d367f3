package access

import (
	"strconv"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// claimPrincipal is a request by a claim of its token, which is a text or a list of texts; with
// wide also a number or a truth value that is written so, and for "*" anything.
func claimPrincipal(path ...string) translator[rbacv3.Principal] {
	return func(v string, wide bool) *rbacv3.Principal {
		m := textMatch(v)
		if m == nil {
			return nil
		}
		values := []*matcherv3.ValueMatcher{envoy.TextValue(m)}
		if wide {
			values = append(values, otherValues(v)...)
		}
		out := make([]*matcherv3.ValueMatcher, 0, 2*len(values))
		for _, value := range values {
			out = append(out, value, envoy.ListValue(value))
		}
		return claim(envoy.AnyValue(out...), path...)
	}
}

// otherValues are those of JSON that v stands for beside the text.
func otherValues(v string) []*matcherv3.ValueMatcher {
	switch v {
	case "*":
		return []*matcherv3.ValueMatcher{{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}}
	case "true", "false":
		return []*matcherv3.ValueMatcher{{MatchPattern: &matcherv3.ValueMatcher_BoolMatch{BoolMatch: v == "true"}}}
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return nil
	}
	return []*matcherv3.ValueMatcher{{MatchPattern: &matcherv3.ValueMatcher_DoubleMatch{
		DoubleMatch: &matcherv3.DoubleMatcher{MatchPattern: &matcherv3.DoubleMatcher_Exact{Exact: n}},
	}}}
}
