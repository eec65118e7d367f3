package access

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Parts of regular expressions for the ways of writing a path that many servers take for the same.
// A code may be encoded again, any number of times: %2f, %252f, %25252F.
const (
	encoded = `%(?:25)*`
	// slash is one, or a backslash.
	slash = `(?:[/\\]|` + encoded + `(?i:2f|5c))`
	// semicolon begins the parameters of a segment.
	semicolon = `(?:;|` + encoded + `(?i:3b))`
	dot       = `(?:\.|` + encoded + `(?i:2e))`
	// parameters of a segment, or none. Some servers end them at any slash, some at a plain one
	// alone.
	parameters = `(?:` + semicolon + `[^/]*)?`
	// between is what stands between two segments. A segment that has only parameters counts as
	// nothing.
	between = `(?:` + parameters + slash + `)+`
	// ambiguous are paths with a segment "." or "..", which proxies have left there because
	// something of it is encoded, or because they normalize nothing. Servers differ in what remains
	// of them.
	ambiguous = `.*` + slash + dot + `{1,2}(?:(?:` + semicolon + `|` + slash + `).*)?`
	// parametered are paths with parameters.
	parametered = `.*` + semicolon + `.*`
)

// paths are the conditions on the path. Where a rule refuses, an ambiguous path is one of those
// that it refuses, and none of those that it leaves out.
func (b *rbacBuilder) paths(values, notValues []string) []*rbacv3.Permission {
	doubt := pathMatch(envoy.RegexMatch(ambiguous))
	var out []*rbacv3.Permission
	if list := translated(b, values, b.widen, httpOnly(b, pathPermission)); len(list) > 0 {
		if b.widen {
			list = append(list, doubt)
		}
		out = append(out, onePermission(list))
	}
	if list := translated(b, notValues, !b.widen, httpOnly(b, exceptedPath)); len(list) > 0 {
		if b.widen {
			out = append(out, onePermission([]*rbacv3.Permission{notPermission(onePermission(list)), doubt}))
		} else {
			out = append(out, notPermission(onePermission(append(list, doubt))))
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

// pathPermission is a request by its path, without what follows "?". wide also takes the ways of
// writing it that servers take for the same: true where that refuses more.
func pathPermission(v string, wide bool) *rbacv3.Permission {
	plain := plainPath(v)
	if plain == nil || !wide || v == "*" {
		return plain
	}
	return onePermission([]*rbacv3.Permission{plain, pathMatch(disguisedPath(v))})
}

// plainPath is a request by its path as it is written; nil when v cannot be told.
func plainPath(v string) *rbacv3.Permission {
	if len(v) > config.MaxPolicyPath {
		return nil
	}
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

func pathMatch(m *matcherv3.StringMatcher) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: m}}}}
}

func notPermission(p *rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: p}}
}

// disguisedPath matches the paths that many servers take for one that v matches: with several
// slashes for one, backslashes, parameters, segments that have only these, and anything that is
// encoded, once or several times.
func disguisedPath(v string) *matcherv3.StringMatcher {
	before, after := "", parameters
	if isPathTemplate(v) {
		// its operators are whole segments
	} else if strings.HasPrefix(v, "*") {
		v, before = v[1:], ".*"
	} else if strings.HasSuffix(v, "*") {
		v, after = v[:len(v)-1], ".*"
	}
	isSlash := func(r rune) bool { return r == '/' || r == '\\' }
	v = decoded(v)
	segments := strings.FieldsFunc(v, isSlash)
	for i, s := range segments {
		segments[i] = disguisedSegment(s)
	}
	regex := strings.Join(segments, between)
	if v != "" && isSlash(rune(v[0])) {
		regex = between + regex
	}
	if len(segments) > 0 && isSlash(rune(v[len(v)-1])) {
		regex += between
	}
	return envoy.RegexMatch(before + regex + after)
}

// disguisedSegment matches a segment of a path, or of a template, each byte of which is plain or
// encoded.
func disguisedSegment(s string) string {
	switch s {
	case oneSegment:
		return "[^/]+"
	case manySegments:
		return ".*"
	}
	var b strings.Builder
	for i := range len(s) {
		plain := regexp.QuoteMeta(s[i : i+1])
		if s[i] >= utf8.RuneSelf {
			plain = fmt.Sprintf(`\x%02x`, s[i])
		}
		fmt.Fprintf(&b, `(?:%s|%s(?i:%02x))`, plain, encoded, s[i])
	}
	return b.String()
}

// decoded decodes a path. What is encoded several times is decoded as often.
func decoded(path string) string {
	code := regexp.MustCompile(encoded + "[0-9a-fA-F]{2}")
	return code.ReplaceAllStringFunc(path, func(s string) string {
		n, err := strconv.ParseUint(s[len(s)-2:], 16, 8)
		if err != nil {
			panic(err) // two digits
		}
		return string([]byte{byte(n)})
	})
}
