package push

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Call is a request or a connection as far as it is known. What is empty is not known, unless it says otherwise.
type Call struct {
	// TCP says that it is a connection of which nothing of HTTP is known.
	TCP bool
	// From is who calls, by its certificate. The zero value is a caller without one: nobody.
	From spiffe.ID
	// Certificate is the one that the caller showed: the SHA-256 of its DER in lower-case hexadecimal.
	Certificate string
	// Revoked is what of the caller is known to be revoked, "the workload shop/web"; empty: nothing. Identities and
	// certificates that the scope knows to be revoked need not be named.
	Revoked string
	// Source is who opened the connection, Remote the client that trusted proxies tell of, Destination the address
	// that it was for.
	Source, Remote, Destination netip.Addr
	// Port is what the connection was for; zero: not known.
	Port uint32
	// ServerName is what its TLS asked for.
	ServerName string
	// Method, Host and Path are the request's.
	Method, Host, Path string
	// Headers are all of the request, names in lower case, each with one value or several; nil: not known.
	Headers map[string][]string
	// Claims are those of the request's token by their names, those of nested ones as "a][b"; each has one value or
	// several. Nil: not known; empty: the request has no token.
	Claims map[string][]string
}

// truth is whether a condition holds.
type truth uint8

const (
	no truth = iota
	// unsure: something that is not known decides.
	unsure
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// not is the opposite.
func (t truth) not() truth { return yes - t }

// known is match of a text, or unsure when there is none.
func known(text string, match func(string) bool) truth {
	if text == "" {
		return unsure
	}
	return truthOf(match(text))
}
