package analyze

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a/web", "a/web", true},
		{"a/web", "a/web2", false},
		{"a/*", "a/web", true},
		{"*/web", "a/web", true},
		{"*", "a/web", true},
		{"a/*b", "a/web", true}, // stars elsewhere are not checked
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("%q and %q: got %v", c.pattern, c.text, got)
		}
	}
}
