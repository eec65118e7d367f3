package gen

import (
	"slices"
	"strconv"
	"strings"

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
	case len(v) > config.MaxPolicyPath, isTemplate && !validTemplate(v), !isTemplate &&
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
		same = same || isAmbiguous(path) || readsAs(v, path)
	case pathExcepted:
		same = same && !isAmbiguous(path) && (v == "*" || v[0] != '*' || !hasParameters(path))
	}
	return truthOf(same), true
}

// pathToken is a byte of a path. coded says that it was encoded, once or several times.
type pathToken struct {
	c     byte
	coded bool
}

func (t pathToken) isSlash() bool { return t.c == '/' || t.c == '\\' }

// plainSlash says that all servers take it for a slash.
func (t pathToken) plainSlash() bool { return t.c == '/' && !t.coded }

// pathTokens decodes a path.
func pathTokens(path string) []pathToken {
	var out []pathToken
	for i := 0; i < len(path); i++ {
		t := pathToken{c: path[i]}
		if end := endOfCode(path[i:]); end > 0 {
			n, err := strconv.ParseUint(path[i+end-2:i+end], 16, 8)
			if err == nil {
				t, i = pathToken{byte(n), true}, i+end-1
			}
		}
		out = append(out, t)
	}
	return out
}

// endOfCode is how long the code is with which s begins, which may itself be encoded, "%252f";
// zero: there is none.
func endOfCode(s string) int {
	if len(s) < 3 || s[0] != '%' || !isHexDigit(s[1]) || !isHexDigit(s[2]) {
		return 0
	}
	end := 3
	for strings.HasSuffix(s[:end], "25") && len(s) >= end+2 && isHexDigit(s[end]) && isHexDigit(s[end+1]) {
		end += 2
	}
	return end
}

// isAmbiguous says that servers differ in what a path means: a segment of it is "." or "..", with
// parameters or without. Where proxies normalize paths it is one with something that is encoded.
func isAmbiguous(path string) bool {
	tokens := pathTokens(path)
	for i, t := range tokens {
		if !t.isSlash() {
			continue
		}
		for n, dot := range tokens[i+1:] {
			if dot.c != '.' || n == 2 {
				break
			}
			if rest := tokens[i+n+2:]; len(rest) == 0 || rest[0].isSlash() || rest[0].c == ';' {
				return true
			}
		}
	}
	return false
}

func hasParameters(path string) bool {
	return slices.ContainsFunc(pathTokens(path), func(t pathToken) bool { return t.c == ';' })
}

// readsAs says whether many servers take a path for one that v matches: with several slashes for
// one, backslashes, parameters, segments that have only these, and anything that is encoded.
func readsAs(v, path string) bool {
	r := pathReader{failed: map[[2]int]bool{}}
	if v[0] != '*' || len(v) == 1 {
		r.want, r.have = wantedTokens(v, true), pathTokens(path)
		return r.matches(0, 0)
	}
	r.want = wantedTokens(v[1:], false)
	for i := range path {
		r.have = pathTokens(path[i:])
		clear(r.failed)
		if r.matches(0, 0) {
			return true
		}
	}
	return false
}

// pathReader compares the tokens of a path with those of a value.
type pathReader struct {
	want []wantedToken
	have []pathToken
	// failed are the places in both from which on they do not match: each is looked at once.
	failed map[[2]int]bool
}

// matches says whether they match from two places on; the parameters of the last segment do not
// count.
func (r pathReader) matches(want, have int) bool {
	at := [2]int{want, have}
	if r.failed[at] {
		return false
	}
	rest := r.have[have:]
	if want == len(r.want) {
		return len(rest) == 0 || rest[0].c == ';' && !slices.ContainsFunc(rest, pathToken.plainSlash)
	}
	if slices.ContainsFunc(r.want[want].ends(rest), func(end int) bool { return r.matches(want+1, have+end) }) {
		return true
	}
	r.failed[at] = true
	return false
}

// wantedToken is a token of a value: a slash, a byte, or one of the operators.
type wantedToken struct {
	c byte
	// operator is '1' for the rest of a segment, '*' for anything; 0: none.
	operator byte
}

// wantedTokens are those of a value. open says that a star at its end stands for anything.
func wantedTokens(v string, open bool) []wantedToken {
	var out []wantedToken
	for v != "" {
		switch {
		case open && v == "*", strings.HasPrefix(v, "{**}"):
			out, v = append(out, wantedToken{operator: '*'}), strings.TrimPrefix(strings.TrimPrefix(v, "*"), "{**}")
			continue
		case strings.HasPrefix(v, "{*}"):
			out, v = append(out, wantedToken{operator: '1'}), v[len("{*}"):]
			continue
		}
		t := pathTokens(v)[0]
		v = v[max(endOfCode(v), 1):]
		if t.isSlash() {
			t.c = '/'
			if len(out) > 0 && out[len(out)-1] == (wantedToken{c: '/'}) {
				continue
			}
		}
		out = append(out, wantedToken{c: t.c})
	}
	return out
}

// ends are the places where what it stands for may end.
func (w wantedToken) ends(have []pathToken) []int {
	var out []int
	switch {
	case w.operator == 0 && w.c == '/':
		return endsOfSlashes(have)
	case w.operator == 0:
		if len(have) > 0 && have[0].c == w.c {
			out = append(out, 1)
		}
	case w.operator == '*':
		for i := range len(have) + 1 {
			out = append(out, i)
		}
	default:
		for i := 0; i < len(have) && !have[i].plainSlash(); i++ {
			out = append(out, i+1)
		}
	}
	return out
}

// endsOfSlashes are the places where what stands between two segments may end: at least one slash,
// each after parameters or none. Parameters end at a plain slash or at any.
func endsOfSlashes(have []pathToken) []int {
	at := make([]bool, len(have)+1)
	at[0] = true
	var ends []int
	for i := range have {
		if i > 0 && at[i] {
			ends = append(ends, i)
		}
		if !at[i] {
			continue
		}
		if have[i].isSlash() {
			at[i+1] = true
		}
		if have[i].c != ';' {
			continue
		}
		for j := i + 1; j < len(have); j++ {
			at[j+1] = at[j+1] || have[j].isSlash()
			if have[j].plainSlash() {
				break
			}
		}
	}
	if at[len(have)] && len(have) > 0 {
		ends = append(ends, len(have))
	}
	return ends
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
