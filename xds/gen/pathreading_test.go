package gen

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ashore-mesh/ashore/config"
)

// pathReading is how a path is compared with a value. What it means for servers is not known: they
// differ.
type pathReading uint8

const (
	// pathAsWritten is the plain reading.
	pathAsWritten pathReading = iota
	// pathRefused is of a value that is refused: it stands for all paths that many servers take for
	// the same, and for those of which nobody can tell what they take them for.
	pathRefused
	// pathExcepted is of a value that is left out of what is refused: it stands for no path that
	// may mean something else.
	pathExcepted
)

// matchPath says whether a path is what v says; not ok when v cannot be told.
func matchPath(v, path string, as pathReading) (t truth, ok bool) {
	isTemplate := strings.Contains(v, "{*}") || strings.Contains(v, "{**}")
	switch {
	case isTemplate && !validTemplate(v), !isTemplate &&
		(v == "" || strings.ContainsAny(v, "{}?#")):
		return no, false
	case path == "":
		return unsure, true
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	same := matchText(v, path)
	if isTemplate {
		same = matchTemplate(strings.Split(v[1:], "/"), strings.Split(strings.TrimPrefix(path, "/"), "/"))
	}
	switch as {
	case pathRefused:
		same = same || isUnclear(path) || readsAs(v, path)
	case pathExcepted:
		same = same && !isUnclear(path) && (v == "*" || v[0] != '*' || !hasParameters(path))
	}
	return truthOf(same), true
}

// isUnclear says that nobody can tell how a server reads a path: something is encoded twice, or is
// encoded although it need not be, or a segment is "." or "..", with parameters or without.
func isUnclear(path string) bool {
	for i := range path {
		c, rest, ok := code(path[i:])
		if _, _, twice := code("%" + rest); ok && (c == '%' && twice || isName(rune(c))) {
			return true
		}
	}
	path = strings.NewReplacer(`\`, "/", "%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", "%3b", ";", "%3B", ";").Replace(path)
	for _, segment := range strings.Split(path, "/")[1:] {
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return true
		}
	}
	return false
}

// code is the byte for which the code stands with which s begins, and what follows it; not ok when it
// begins with none.
func code(s string) (c byte, rest string, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, "", false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(n), s[3:], err == nil && isHexDigit(s[1])
}

func hasParameters(path string) bool {
	return strings.Contains(strings.ReplaceAll(path, "%3B", "%3b"), "%3b") || strings.Contains(path, ";")
}

func isName(r rune) bool {
	return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._", r))
}

// readsAs says whether a server may take a path for one that v matches: something else than single
// slashes ends its segments, or it has codes and v has something to encode; and it has all names of v.
func readsAs(v, path string) bool {
	switch {
	case v == "*":
		return false
	case strings.Contains(v, "{*}") || strings.Contains(v, "{**}"):
		v = strings.ReplaceAll(strings.ReplaceAll(v, "{**}", ""), "{*}", "")
	case v[0] == '*':
		v = v[1:]
	case v[len(v)-1] == '*':
		v = v[:len(v)-1]
	}
	if text, err := url.PathUnescape(v); err == nil {
		v = text
	}
	low := strings.ToLower(path)
	odd := false
	for _, separator := range []string{"//", `\`, ";", "%2f", "%5c", "%3b"} {
		odd = odd || strings.Contains(low, separator)
	}
	var names []string
	for name := range strings.SplitSeq(strings.Map(func(r rune) rune {
		switch {
		case isName(r):
			return r
		case r != '/':
			odd = odd || strings.Contains(path, "%")
		}
		return '/'
	}, v), "/") {
		names = append(names, name)
	}
	return odd && !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(path, name) })
}

// validTemplate says that proxies understand a template: {*} and {**} are whole segments, and none
// comes after {**}.
func validTemplate(v string) bool {
	if v[0] != '/' || len(strings.NewReplacer("{", "", "}", "").Replace(v)) > config.MaxPolicyTemplate {
		return false
	}
	segments := strings.Split(v[1:], "/")
	for i, s := range segments {
		switch {
		case s == "{*}" || s == "{**}":
			if slices.Contains(segments[:i], "{**}") {
				return false
			}
		case s == "" && i == len(segments)-1:
		case s == "" || strings.ContainsFunc(s, func(r rune) bool {
			return r >= 0x80 || !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
				strings.ContainsRune("-._~%!$&'()+,;:@", r))
		}):
			return false
		}
	}
	return true
}

// matchTemplate compares segments. {*} is one that is not empty, {**} at least one, which may be
// empty.
func matchTemplate(want, have []string) bool {
	if len(want) == 0 {
		return len(have) == 0
	}
	if want[0] == "{**}" {
		for i := range have {
			if matchTemplate(want[1:], have[i+1:]) {
				return true
			}
		}
		return false
	}
	return len(have) > 0 && (want[0] == have[0] || want[0] == "{*}" && have[0] != "") &&
		matchTemplate(want[1:], have[1:])
}

func isHexDigit(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }
