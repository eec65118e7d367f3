package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
)

// recordTable is a table of records of one type, in JSON.
type recordTable[T any] struct {
	store record.Store
	name  string
}

func (t recordTable[T]) key(name string) record.Key { return record.Key{Table: t.name, Name: name} }

func (t recordTable[T]) decode(r record.Record) (x T, err error) {
	if err := json.Unmarshal(r.Value, &x); err != nil {
		return *new(T), fmt.Errorf("%s %s: its record cannot be read: %w: restore the store from a backup",
			t.name, r.Name, err)
	}
	return x, nil
}

// get reads a record. The version is empty if there is none.
func (t recordTable[T]) get(ctx context.Context, name string) (x T, version string, err error) {
	r, err := t.store.Get(ctx, t.key(name))
	if err == nil && r.Version != "" {
		x, err = t.decode(r)
	}
	return x, r.Version, err
}

// list reads all records, in the order of their names. If some cannot be read it returns an error
// and the others.
func (t recordTable[T]) list(ctx context.Context) ([]T, error) {
	records, err := t.store.List(ctx, t.name)
	if err != nil {
		return nil, fmt.Errorf("list the table %s: %w", t.name, err)
	}
	out := make([]T, 0, len(records))
	var errs []error
	for _, r := range records {
		x, err := t.decode(r)
		if err == nil {
			out = append(out, x)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// replace is the write that replaces a record that was read at a version.
func (t recordTable[T]) replace(name string, x T, version string) (record.Write, error) {
	value, err := json.Marshal(x)
	return record.Write{Key: t.key(name), Value: value, Version: version}, err
}

// commit replaces a record that was read at a version. Errors: record.ErrConflict.
func (t recordTable[T]) commit(ctx context.Context, name string, x T, version string) error {
	w, err := t.replace(name, x, version)
	if err != nil {
		return err
	}
	return t.store.Commit(ctx, w)
}

// sweep deletes the records that have ended, unless they change meanwhile.
func (t recordTable[T]) sweep(ctx context.Context, ended func(T) bool) error {
	records, err := t.store.List(ctx, t.name)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		x, err := t.decode(r)
		if err == nil && ended(x) {
			err = t.store.Commit(ctx, record.Write{Key: r.Key, Version: r.Version})
		}
		if !errors.Is(err, record.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
