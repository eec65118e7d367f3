package ca

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
)

// table is where roots and the state of a rotation stand. No key ever does.
const table = "ca"

// The records of the table.
const (
	rotationRecord = "rotation" // State
)

// stateStore keeps a State.
type stateStore struct{ records record.Store }

func rotationKey() record.Key { return record.Key{Table: table, Name: rotationRecord} }

// read returns the state and its version; empty: there is none.
func (s stateStore) read(ctx context.Context) (State, string, error) {
	r, err := s.records.Get(ctx, rotationKey())
	if err != nil || r.Version == "" {
		return State{}, "", err
	}
	var st State
	if err := decodeRecord(r.Value, &st); err != nil {
		return State{}, "", fmt.Errorf("the record %s of table %s: %w: restore the store from a backup", rotationRecord,
			table, err)
	}
	return st, r.Version, nil
}

// write replaces the state that was read at a version. Errors: record.ErrConflict.
func (s stateStore) write(ctx context.Context, st State, version string) error {
	value, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return s.records.Commit(ctx, record.Write{Key: rotationKey(), Value: value, Version: version})
}

// root is one of the state's certificates.
func (s State) root(id string) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(s.Roots[id])
	if err != nil {
		return nil, fmt.Errorf("the root %s in the records: %w", id, err)
	}
	if got := RootID(c); got != id {
		return nil, fmt.Errorf("the root %s in the records is %s", id, got)
	}
	return c, nil
}

// bundle is what everybody is to trust.
func (s State) bundle() (*Bundle, error) {
	var roots []*x509.Certificate
	for _, id := range s.trusted() {
		c, err := s.root(id)
		if err != nil {
			return nil, err
		}
		roots = append(roots, c)
	}
	return NewBundle(roots...), nil
}
