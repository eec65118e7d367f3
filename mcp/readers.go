package mcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Readers are the identities that may read the configuration of the mesh.
type Readers struct {
	// Anybody allows clients without an identity too, for development.
	Anybody bool
	// Identities may read.
	Identities []spiffe.ID
	// RootNamespace allows all identities of that namespace in TrustDomain; empty: none. Source:
	// Istio allows those of its root namespace.
	RootNamespace, TrustDomain string
}

var (
	// ErrUnknownReader is the error for clients without an identity.
	ErrUnknownReader = errors.New("reading configuration requires an authenticated identity of a control plane")
	// ErrNotReader is the error for identities that may not read.
	ErrNotReader = errors.New("may not read the configuration")
)

// May returns why an identity may not read; nil: it may. Errors: ErrUnknownReader, ErrNotReader.
func (r *Readers) May(id spiffe.ID) error {
	switch {
	case r.Anybody:
		return nil
	case id == (spiffe.ID{}):
		return ErrUnknownReader
	case slices.Contains(r.Identities, id):
		return nil
	case r.RootNamespace != "" && id.Namespace == r.RootNamespace && id.TrustDomain == r.TrustDomain:
		return nil
	}
	return fmt.Errorf("%s %w", id, ErrNotReader)
}
