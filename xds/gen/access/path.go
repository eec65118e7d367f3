package access

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

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
	slash = `(?:[/\\]|` + encoded + `(?:2[fF]|5[cC]))`
	// semicolon begins the parameters of a segment.
	semicolon = `(?:;|` + encoded + `3[bB])`
	dot       = `(?:\.|` + encoded + `2[eE])`
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
	if list := translated(b, values, httpOnly(b, pathPermission(b.widen))); len(list) > 0 {
		if b.widen {
			list = append(list, doubt)
		}
		out = append(out, onePermission(list))
	}
	if list := translated(b, notValues, httpOnly(b, b.exceptedPath)); len(list) > 0 {
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
func (b *rbacBuilder) exceptedPath(v string) *rbacv3.Permission {
	p := pathPermission(!b.widen)(v)
	if p == nil || !b.widen || v == "*" || v[0] != '*' {
		return p
	}
	return allPermissions([]*rbacv3.Permission{p, notPermission(pathMatch(envoy.RegexMatch(parametered)))})
}

// pathPermission is a request by its path, without what follows "?". wide also takes the ways of
// writing it that servers take for the same: true where that refuses more.
func pathPermission(wide bool) func(string) *rbacv3.Permission {
	return func(v string) *rbacv3.Permission {
		plain := plainPath(v)
		if plain == nil || !wide || v == "*" {
			return plain
		}
		return onePermission([]*rbacv3.Permission{plain, pathMatch(disguisedPath(v))})
	}
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
	var b strings.Builder
	b.WriteString(before)
	for v != "" {
		var n int
		switch c, size := decodedByte(v); {
		case c == '/' || c == '\\':
			for ; size > 0 && (c == '/' || c == '\\'); c, size = decodedByte(v[n:]) {
				n += size
			}
			b.WriteString(between)
		case strings.HasPrefix(v, oneSegment):
			n = len(oneSegment)
			b.WriteString("[^/]+")
		case strings.HasPrefix(v, manySegments):
			n = len(manySegments)
			b.WriteString(".*")
		default:
			n = size
			b.WriteString(disguisedByte(c))
		}
		v = v[n:]
	}
	b.WriteString(after)
	return envoy.RegexMatch(b.String())
}

// disguisedByte matches a byte of a path, which is plain or encoded.
func disguisedByte(c byte) string {
	plain := fmt.Sprintf(`\x%02x`, c)
	if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
		plain = string(rune(c))
	}
	var code strings.Builder
	for _, d := range fmt.Sprintf("%02x", c) {
		if unicode.IsLetter(d) {
			code.WriteString("[" + string(d) + string(unicode.ToUpper(d)) + "]")
		} else {
			code.WriteRune(d)
		}
	}
	return "(?:" + plain + "|" + encoded + code.String() + ")"
}

// decodedByte reads the first byte of a path, and how long its text is: zero at the end. What is
// encoded several times is decoded as often.
func decodedByte(path string) (c byte, size int) {
	if path == "" {
		return 0, 0
	}
	if path[0] != '%' {
		return path[0], 1
	}
	for size = 1; len(path) >= size+4 && path[size:size+2] == "25" && isHex(path[size+2]) &&
		isHex(path[size+3]); size += 2 {
	}
	if len(path) < size+2 {
		return '%', 1
	}
	n, err := strconv.ParseUint(path[size:size+2], 16, 8)
	if err != nil {
		return '%', 1
	}
	return byte(n), size + 2
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
