package access

import (
	"regexp"
	"strings"
	"testing"
)

// What matches the opposite of a value matches exactly what the value does not, and values of the
// greatest length are within what Envoy takes.
func TestOtherMatch(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", "b", "ab", "ba", "abc", "cab", "a.c", "axc", "é", "éa", "aé", "x", "aab", "bab"}
	for _, v := range []string{"a", "ab", "a*", "*a", "ab*", "*ab", "a.c", "é", "aé*", "*éa"} {
		other := regexp.MustCompile("^(?:" + otherMatch(v).GetSafeRegex().Regex + ")$")
		for _, s := range texts {
			if one := reads(v, s); one == other.MatchString(s) {
				t.Errorf("%q: %q matches: %v, its opposite: %v", v, s, one, other.MatchString(s))
			}
		}
	}
	long := strings.Repeat("a", maxOther)
	other := regexp.MustCompile("^(?:" + otherMatch(long).GetSafeRegex().Regex + ")$")
	if other.MatchString(long) || !other.MatchString(long[1:]) {
		t.Error("the longest value is matched wrongly")
	}
}

// reads says whether a text is what a value of a policy says, which may have a star at one end.
func reads(v, s string) bool {
	if end, ok := strings.CutPrefix(v, "*"); ok {
		return strings.HasSuffix(s, end)
	}
	if begin, ok := strings.CutSuffix(v, "*"); ok {
		return strings.HasPrefix(s, begin)
	}
	return s == v
}
