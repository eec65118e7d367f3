package authz

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Request is a request or a connection, as far as it is known. An empty field is unknown, unless it
// says otherwise.
type Request struct {
	// TCP means that it is a connection of which nothing of HTTP is known.
	TCP bool
	// From is the caller's identity, from its certificate. The zero value is a caller without a
	// certificate.
	From spiffe.ID
	// Certificate is the SHA-256 of the caller's certificate in DER, in lower-case hexadecimal.
	// Empty means one that is not revoked.
	Certificate string
	// Revoked is what of the caller is revoked, "the workload shop/web", beside what the scope
	// knows; empty: nothing.
	Revoked string
	// Source is who opened the connection, Remote the client that trusted proxies name. Destination
	// is the address that the connection was for.
	Source, Remote, Destination netip.Addr
	// Port is the port that the connection was for.
	Port uint32
	// ServerName is the SNI of the connection.
	ServerName string
	// Method, Host and Path are the request's.
	Method, Host, Path string
	// Headers are all headers of the request, by names in lower case; nil: unknown.
	Headers map[string][]string
	// Claims are those of the request's token by name, those of nested ones as "a][b". Nil:
	// unknown; empty: no token.
	Claims map[string][]string
}

// truth is whether a condition holds. The order is that of and and or: they are min and max.
type truth uint8

const (
	no truth = iota
	unknown
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) not() truth { return yes - t }
