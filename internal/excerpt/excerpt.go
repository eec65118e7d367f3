package excerpt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of returns a text, or its first bytes and "…" if it has more than most bytes. It does not split
// characters, and replaces invalid UTF-8 by "�", because protobuf and JSON require UTF-8.
func Of(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	cut := most
	for cut > max(0, most-utf8.UTFMax) && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "�") + "…"
}

// Line is Of for a text that becomes one line. Blanks and control characters become one space.
func Line(s string, most int) string {
	blank := func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }
	return Of(strings.Join(strings.FieldsFunc(s, blank), " "), most)
}
