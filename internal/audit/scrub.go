package audit

import "strings"

// scrub blacks out what looks like a secret: the secret part of a join token or a replica's, a JWT, what follows "Bearer ", and
// PEM blocks of private keys. Callers hand over none; this is the second lock.
func scrub(text string) string {
	if i := strings.Index(text, "PRIVATE KEY-----"); i >= 0 {
		if begin := strings.LastIndex(text[:i], "-----BEGIN"); begin >= 0 {
			return text[:begin] + "(private key)"
		}
	}
	for _, secret := range []struct {
		mark string
		keep int // dots after the mark, up to which the text is no secret
	}{{"ashore-join.", 1}, {"ashore-replica.", 1}, {"Bearer ", 0}, {"bearer ", 0}, {"eyJ", 0}} {
		text = blacken(text, secret.mark, secret.keep)
	}
	return text
}

// hidden stands in the place of a secret.
const hidden = "(secret)"

// blacken replaces the word after every mark, from behind its first keep dots on.
func blacken(text, mark string, keep int) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, mark)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(mark)
		word := rest[:wordEnd(rest)]
		kept := 0
		for range keep {
			dot := strings.IndexByte(word[kept:], '.')
			if dot < 0 {
				kept = len(word)
				break
			}
			kept += dot + 1
		}
		out.WriteString(word[:kept])
		if kept < len(word) {
			out.WriteString(hidden)
		}
		text = rest[len(word):]
	}
}

// wordEnd is where the characters of tokens end: base64url, dots, and base64's own.
func wordEnd(s string) int {
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.+/=", c) >= 0:
		default:
			return i
		}
	}
	return len(s)
}
