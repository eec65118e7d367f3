package linediff

import (
	"fmt"
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	t.Parallel()
	long := func(change int, to string) string {
		var out strings.Builder
		for i := range 30 {
			if i == change {
				out.WriteString(to + "\n")
				continue
			}
			fmt.Fprintf(&out, "%d\n", i)
		}
		return out.String()
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"nothing", "", "", ""},
		{"equal but for the last end", "a\nb", "a\nb\n", ""},
		{"created", "", "a\nb\n", "--- x\n+++ y\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"deleted", "a\n", "", "--- x\n+++ y\n@@ -1 +0,0 @@\n-a\n"},
		{"changed", "a\nb\nc\n", "a\nB\nc\n", "--- x\n+++ y\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"in the middle", long(-1, ""), long(15, "new"), "--- x\n+++ y\n@@ -13,7 +13,7 @@\n 12\n 13\n 14\n-15\n+new\n 16\n 17\n 18\n"},
		{"two places", strings.Replace(long(2, "A"), "27\n", "", 1), long(-1, ""),
			"--- x\n+++ y\n@@ -1,6 +1,6 @@\n 0\n 1\n-A\n+2\n 3\n 4\n 5\n@@ -25,5 +25,6 @@\n 24\n 25\n 26\n+27\n 28\n 29\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := Unified("x", "y", c.from, c.to); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Whatever the texts are, the edits make the second of the first, and what is far too different is
// shown as replaced.
func FuzzCompare(f *testing.F) {
	f.Add("a\nb\nc\na\nb\nb\na", "c\nb\na\nb\na\nc")
	f.Add("", "a")
	f.Add(strings.Repeat("x\n", 2*maxEdits), strings.Repeat("y\n", 2*maxEdits))
	f.Fuzz(func(t *testing.T, from, to string) {
		a, b := lines(from), lines(to)
		var x, y []string
		for _, e := range compare(a, b) {
			if e.op != '+' {
				x = append(x, e.line)
			}
			if e.op != '-' {
				y = append(y, e.line)
			}
		}
		if strings.Join(x, "\n") != strings.Join(a, "\n") || strings.Join(y, "\n") != strings.Join(b, "\n") ||
			len(x) != len(a) || len(y) != len(b) {
			t.Errorf("%q to %q: the edits make %q of %q", from, to, y, x)
		}
		if d := Unified("x", "y", from, to); (d == "") != (strings.Join(a, "\n") == strings.Join(b, "\n") &&
			len(a) == len(b)) {
			t.Errorf("%q to %q: the difference is %q", from, to, d)
		}
	})
}
