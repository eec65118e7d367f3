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
	// Revoked is what of the caller is revoked, "the workload shop/web", beside what the scope
	// knows; empty: nothing.
	Revoked string
	// Destination is the address that the connection was for.
	Destination netip.Addr
	// Port is the port that the connection was for.
	Port uint32
	// Method, Host and Path are the request's.
	Method, Host, Path string
	// Headers are other headers that are known, by their names in lower case.
	Headers map[string]string
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
