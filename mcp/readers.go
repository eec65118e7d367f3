package mcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Readers are who may read the configuration of the mesh.
type Readers struct {
	// Anybody lets those read who prove nothing as well: for development.
	Anybody bool
	// Identities are those that may, and no others. Empty: those of RootNamespace in TrustDomain.
	Identities []spiffe.ID
	// RootNamespace is where control planes are, and TrustDomain is the mesh's own. Source: Istio, which lets
	// identities of its root namespace read.
	RootNamespace, TrustDomain string
}

var (
	// ErrUnknownReader is the answer to who proves nothing.
	ErrUnknownReader = errors.New("reading configuration requires an authenticated identity of a control plane")
	// ErrNotReader is the answer to who may not.
	ErrNotReader = errors.New("may not read the configuration")
)

// May says why somebody may not read; nil: they may. Errors: ErrUnknownReader, ErrNotReader.
func (r *Readers) May(id spiffe.ID) error {
	switch {
	case r.Anybody:
		return nil
	case id == (spiffe.ID{}):
		return ErrUnknownReader
	case len(r.Identities) > 0 && slices.Contains(r.Identities, id):
		return nil
	case len(r.Identities) == 0 && r.RootNamespace != "" && id.Namespace == r.RootNamespace && id.TrustDomain == r.TrustDomain:
		return nil
	}
	return fmt.Errorf("%s %w", id, ErrNotReader)
}
