package mcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Readers decides which identities may read the configuration of the mesh.
type Readers struct {
	// Anybody allows every client, also one without an identity.
	Anybody bool
	// Identities lists the allowed identities.
	Identities []spiffe.ID
	// RootNamespace allows every identity of that namespace in TrustDomain. Empty allows none. Istio
	// does the same for its root namespace.
	RootNamespace, TrustDomain string
}

var (
	// ErrUnauthenticated means that the client has no identity.
	ErrUnauthenticated = errors.New("reading the configuration requires a client certificate with a SPIFFE ID")
	// ErrPermissionDenied means that the identity is not allowed to read.
	ErrPermissionDenied = errors.New("not allowed to read the configuration (setting mcp.readers)")
)

// Authorize returns nil if the identity may read. Errors: ErrUnauthenticated, ErrPermissionDenied.
func (r *Readers) Authorize(id spiffe.ID) error {
	switch {
	case r.Anybody:
		return nil
	case id == (spiffe.ID{}):
		return ErrUnauthenticated
	case slices.Contains(r.Identities, id):
		return nil
	case r.RootNamespace != "" && id.Namespace == r.RootNamespace && id.TrustDomain == r.TrustDomain:
		return nil
	}
	return fmt.Errorf("%s: %w", id, ErrPermissionDenied)
}
