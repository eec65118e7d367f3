package consulhttp

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// maxText limits Consul's text in our messages, in bytes.
const maxText = 300

// ErrNoIndex is returned for a response without X-Consul-Index, which Consul always sends. Source:
// Consul, agent/http.go (setIndex).
var ErrNoIndex = errors.New("the response has no X-Consul-Index header: check that address is Consul's HTTP API, and that no proxy removes headers")

// OneLine returns s on one line, without control characters and limited in length.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }),
		" ")
	return excerpt.Of(s, maxText)
}

// unasked is net/http's error for an unsolicited response on an idle connection. Source: net/http,
// transport.go (readLoopPeekFailLocked).
const unasked = "readLoopPeekFailLocked: %!w(<nil>)"

// Bare returns the text of an error without the request URL and the local port. It is equal for
// repeated failures, so they are reported once.
func Bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	words := strings.Split(strings.ReplaceAll(OneLine(err.Error()), unasked, "unsolicited response on an idle connection"),
		" ")
	for i, w := range words {
		if local, remote, ok := strings.Cut(w, "->"); ok && isAddrPort(local) {
			words[i] = remote
		}
	}
	return strings.Join(words, " ")
}

func isAddrPort(s string) bool {
	_, err := netip.ParseAddrPort(s)
	return err == nil
}
