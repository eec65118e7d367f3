package access

import (
	"net/url"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Regular expressions for paths that Envoy has normalized and that servers read in several ways.
const (
	// recoded are paths with a code within a code ("%252f"), or with a letter, a digit, "-", "." or "_"
	// that is encoded, which Envoy decodes unless it normalizes nothing.
	recoded = `.*%(?:25[0-9a-fA-F]{2}|2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]).*`
	// dotted are paths with a segment "." or "..", which Envoy resolves unless something of it is encoded.
	dotted = `.*(?:[/\\]|%2[fF]|%5[cC])\.{1,2}(?:(?:[/\\;]|%2[fF]|%5[cC]|%3[bB]).*)?`
	// separated are paths with something else than single slashes that may end a segment.
	separated = `.*(?://|[\\;]|%2[fF]|%5[cC]|%3[bB]).*`
	// encoded are those and all paths with codes.
	encoded = `.*(?://|[\\;%]).*`
	// parametered are paths with parameters (";").
	parametered = `.*(?:;|%3[bB]).*`
)

// paths are the conditions on the path. A DENY rule refuses a path that servers may read in different
// ways, whatever the rule's notPaths say.
func (b *rbacBuilder) paths(values, notValues []string) []*rbacv3.Permission {
	unclear := []*rbacv3.Permission{pathMatch(envoy.RegexMatch(recoded)), pathMatch(envoy.RegexMatch(dotted))}
	var out []*rbacv3.Permission
	if list := translated(b, values, b.widen, httpOnly(b, pathPermission)); len(list) > 0 {
		if b.widen {
			list = append(list, unclear...)
		}
		out = append(out, onePermission(list))
	}
	if list := translated(b, notValues, !b.widen, httpOnly(b, exceptedPath)); len(list) > 0 {
		if b.widen {
			out = append(out, onePermission(append(unclear, notPermission(onePermission(list)))))
		} else {
			out = append(out, notPermission(onePermission(append(list, unclear...))))
		}
	}
	return out
}

// exceptedPath is a path that the rule is not about. In a rule that refuses parameters do not stand
// for the end of one.
func exceptedPath(v string, wide bool) *rbacv3.Permission {
	p := pathPermission(v, wide)
	if p == nil || wide || v == "*" || v[0] != '*' {
		return p
	}
	return allPermissions([]*rbacv3.Permission{p, notPermission(pathMatch(envoy.RegexMatch(parametered)))})
}

// pathPermission is a request by its path, without what follows "?". wide also takes paths that a
// server may take for one that v matches: true where that refuses more.
func pathPermission(v string, wide bool) *rbacv3.Permission {
	plain := plainPath(v)
	if plain == nil || !wide || v == "*" {
		return plain
	}
	return onePermission([]*rbacv3.Permission{plain, disguisedPath(v)})
}

// plainPath is a request by its path as it is written; nil when v cannot be told.
func plainPath(v string) *rbacv3.Permission {
	if isPathTemplate(v) {
		t := pathTemplate(v)
		if t == "" {
			return nil
		}
		return &rbacv3.Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: templateMatch(t)}}
	}
	m := textMatch(v)
	if m == nil || strings.ContainsAny(v, "{}?#") {
		return nil
	}
	return pathMatch(m)
}

// disguisedPath matches paths that are written in another way than v: with other separators between
// their segments, or codes for characters of v. Of v they have all names.
func disguisedPath(v string) *rbacv3.Permission {
	switch {
	case isPathTemplate(v):
		v = strings.NewReplacer(oneSegment, "", manySegments, "").Replace(v)
	case v[0] == '*':
		v = v[1:]
	default:
		v = strings.TrimSuffix(v, "*")
	}
	if text, err := url.PathUnescape(v); err == nil {
		v = text
	}
	written := separated
	if strings.ContainsFunc(v, func(r rune) bool { return r != '/' && !isNameRune(r) }) {
		written = encoded
	}
	out := []*rbacv3.Permission{pathMatch(envoy.RegexMatch(written))}
	names := strings.FieldsFunc(v, func(r rune) bool { return !isNameRune(r) })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		contains := &matcherv3.StringMatcher_Contains{Contains: name}
		out = append(out, pathMatch(&matcherv3.StringMatcher{MatchPattern: contains}))
	}
	return allPermissions(out)
}

// isNameRune says that a rune is never encoded in a path that Envoy has normalized.
func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._", r)
}

func pathMatch(m *matcherv3.StringMatcher) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: m}}}}
}

func notPermission(p *rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: p}}
}
