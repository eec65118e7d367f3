package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Of long words the beginning and the reason are shown; short ones are shown as they are.
func TestGist(t *testing.T) {
	t.Parallel()
	resource := "route_config {\n" + strings.Repeat("  name: \"a (b)\"\n", 300) + "}\n"
	const begin = "Error adding/updating listener(s) 0.0.0.0_80: "
	for name, tc := range map[string]struct {
		in, want string
		cut      bool
	}{
		"short": {"unknown cluster\nin a route", "unknown cluster\n  in a route", false},
		"chain": {begin + "goo.gle/debugstr  \n" + resource + ": Proto constraint validation failed (A.B: embedded | caused by C.D: embedded | caused by field: \"x(y)\", reason: is required)",
			"Error adding/updating listener(s) 0.0.0.0_80\n  reason: field: \"x(y)\", reason: is required", true},
		"one cause": {begin + "goo.gle/debugonly \n" + resource + ": Proto constraint validation failed (A.B: too short)",
			"Error adding/updating listener(s) 0.0.0.0_80\n  reason: Proto constraint validation failed (A.B: too short)", true},
		"resource last": {begin + "failed (A: (B: too short)): {\n" + resource, begin + "failed (A: (B: too short))", true},
		"one long line": {begin + strings.Repeat("x", 500) + "(why (it is so))", begin + strings.Repeat("x", 400-len(begin)) + "…\n  reason: it is so", true},
		"no reason":     {begin + "no\n" + strings.Repeat("\n", 9) + "x", begin + "no", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, cut := gist(tc.in); got != tc.want || cut != tc.cut {
				t.Errorf("got %q, %v\nwant %q, %v", got, cut, tc.want, tc.cut)
			}
		})
	}
}

// No words make it panic, or longer than people read.
func FuzzGist(f *testing.F) {
	f.Add("a (b (c)) caused by d)")
	f.Add("\n: \n\n\n\n(")
	f.Fuzz(func(t *testing.T, s string) {
		if got, cut := gist(s); cut && len(got) > 2*fewLetters+50 || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
