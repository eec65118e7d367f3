package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A text that is short enough stays as it is; of another one the beginning does, letters whole.
func TestOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"", 5, ""}, {"four", 4, "four"}, {"fours", 4, "four…"}, {"x", 0, "…"},
		{"aüü", 5, "aüü"}, {"aüü", 4, "aü…"}, {"aüü", 3, "aü…"}, {"aüü", 2, "a…"},
		{"a\U0001F600b", 4, "a…"}, {"a\U0001F600b", 5, "a\U0001F600…"},
		{"a\xffb", 3, "a�b"}, {"a\xffbc", 2, "a�…"}, {"\x80\x80\x80\x80\x80\x80\x80", 5, "�…"},
	} {
		if got := Of(tc.text, tc.most); got != tc.want {
			t.Errorf("%d of %q: got %q, want %q", tc.most, tc.text, got, tc.want)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	if got := Line(" a\n\tb \x1b[1m c", 7); got != "a b [1m…" {
		t.Errorf("got %q", got)
	}
}

// Whatever the text, what is left of it is text, and its beginning when it was text.
func FuzzOf(f *testing.F) {
	f.Add("aüü", 3)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 0 {
			return
		}
		got := Of(s, most)
		if !utf8.ValidString(got) {
			t.Errorf("%d of %q: %q is no text", most, s, got)
		}
		head, cut := strings.CutSuffix(got, "…")
		if utf8.ValidString(s) && len(s) > most && (!cut || len(head) > most || len(head) <= most-utf8.UTFMax ||
			!strings.HasPrefix(s, head)) {
			t.Errorf("%d of %q: got %q", most, s, got)
		}
	})
}
