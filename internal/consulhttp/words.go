package consulhttp

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// maxSaid is how much of what Consul says is told on, in bytes.
const maxSaid = 300

// OneLine is a text of Consul's on one line, without what is no text, bounded.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	return excerpt.Of(s, maxSaid)
}

// Bare is an error without the address that was asked, which has names in it and differs with each, and without this side's
// port of the connection, which differs with each try.
func Bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	words := strings.Split(OneLine(err.Error()), " ")
	for i, w := range words {
		if here, there, ok := strings.Cut(w, "->"); ok && isAddrPort(here) {
			words[i] = there
		}
	}
	return strings.Join(words, " ")
}

func isAddrPort(s string) bool {
	_, err := netip.ParseAddrPort(s)
	return err == nil
}
