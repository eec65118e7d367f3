package excerpt

import (
	"strings"
	"unicode/utf8"
)

// Of is a text, or when it has more than most bytes the beginning of it, with "…" after it. No
// letter is cut in two, and what is no UTF-8 becomes "�": protobuf and JSON take nothing else.
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
