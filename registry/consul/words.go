package consul

import (
	"errors"
	"net/url"
	"strings"
	"unicode"
)

// maxSaid is how much of what Consul says is told on, in bytes.
const maxSaid = 300

// oneLine is a text of Consul's on one line, without what is no text, bounded.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + "…"
	}
	return s
}

// bare is an error without the address that was asked, which has names of services in it and differs with each.
func bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return oneLine(err.Error())
}
