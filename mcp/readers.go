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
	// Identities are some that may.
	Identities []spiffe.ID
	// RootNamespace, when not empty, is where all that are of TrustDomain, the mesh's own, may. Source: Istio, which lets
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
	case slices.Contains(r.Identities, id):
		return nil
	case r.RootNamespace != "" && id.Namespace == r.RootNamespace && id.TrustDomain == r.TrustDomain:
		return nil
	}
	return fmt.Errorf("%s %w", id, ErrNotReader)
}
