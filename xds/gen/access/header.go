package access

import (
	"fmt"
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// maxOther bounds the values whose opposite is written out, so that the expressions stay small.
const maxOther = 200

// headerPrincipal is a request by one of its headers, which may be there several times. With wide
// it is enough that one of them, or one of the items that stand in it between commas, is as it was
// written; else all of them have to be, so that nobody gets around a policy by a second header of
// the name (values of more than 200 bytes aside). Envoy 1.40, tried: a matcher takes a request when
// one of the headers matches.
func headerPrincipal(name string) translator[rbacv3.Principal] {
	name = strings.ToLower(name)
	is := func(v string, m *matcherv3.StringMatcher) *rbacv3.Principal {
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: policyHeader(name, v, m)}}
	}
	return func(v string, wide bool) *rbacv3.Principal {
		match := textMatch(v)
		switch {
		case match == nil:
			return nil
		case v == "*":
			return is(v, match)
		case wide:
			return onePrincipal([]*rbacv3.Principal{is(v, match), is(v, itemMatch(v))})
		case len(v) > maxOther:
			return is(v, match)
		}
		other := &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: is(v, otherMatch(v))}}
		return allPrincipals([]*rbacv3.Principal{is(v, match), other})
	}
}

// itemMatch matches lists, separated by commas, that have an item which v matches.
func itemMatch(v string) *matcherv3.StringMatcher {
	item := regexp.QuoteMeta(strings.Trim(v, "*"))
	switch {
	case strings.HasPrefix(v, "*"):
		item = ".*" + regexp.QuoteMeta(v[1:])
	case strings.HasSuffix(v, "*"):
		item = regexp.QuoteMeta(v[:len(v)-1]) + ".*"
	}
	return envoy.RegexMatch(`(?:.*,)?[ \t]*` + item + `[ \t]*(?:,.*)?`)
}

// otherMatch matches what v does not match. Regular expressions of Envoy cannot say that, so it
// says it letter by letter: another letter at its place, or an end too early, or one too late.
func otherMatch(v string) *matcherv3.StringMatcher {
	rest, letters, backwards := ".+", []rune(v), false // rest is what may follow when all letters are right
	switch {
	case strings.HasPrefix(v, "*"):
		rest, letters, backwards = "", letters[1:], true
	case strings.HasSuffix(v, "*"):
		rest, letters = "", letters[:len(letters)-1]
	}
	for i := range letters {
		at := len(letters) - 1 - i
		if backwards {
			at = i
		}
		letter := fmt.Sprintf(`\x{%x}`, letters[at])
		wrong, right := "[^"+letter+"].*", letter+rest
		if backwards {
			wrong, right = ".*[^"+letter+"]", rest+letter
		}
		if rest == "" {
			rest = "(?:" + wrong + ")?"
			continue
		}
		rest = "(?:" + wrong + "|" + right + ")?"
	}
	return envoy.RegexMatch(rest)
}
