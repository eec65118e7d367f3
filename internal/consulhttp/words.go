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

// ErrNoIndex is about answers that are none of Consul's, which has no index of zero.
// Source: Consul, agent/http.go (setIndex).
var ErrNoIndex = errors.New("the answer has no X-Consul-Index: is it the address of Consul's HTTP interface, and does nobody between take out headers?")

// OneLine is a text of Consul's on one line, without what is no text, bounded.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }),
		" ")
	return excerpt.Of(s, maxSaid)
}

// unasked is how net/http calls an answer on a connection on which nothing was asked.
// Source: net/http, transport.go (readLoopPeekFailLocked).
const unasked = "readLoopPeekFailLocked: %!w(<nil>)"

// Bare is an error without the address that was asked, which has names in it and differs with each,
// without this side's port of the connection, which differs with each try, and without words that
// are for programmers.
func Bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	words := strings.Split(strings.ReplaceAll(OneLine(err.Error()), unasked, "an answer came that was not asked for"),
		" ")
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
