package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
)

// recordFormat is the version of what is stored. Any other is refused.
const recordFormat = 1

// storedRecord is how a value is stored in a record or a file.
type storedRecord struct {
	Format int             `json:"v"`
	Value  json.RawMessage `json:"value"`
}

func encodeRecord(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedRecord{recordFormat, text})
}

func decodeRecord(text []byte, into any) error {
	var r storedRecord
	err := json.Unmarshal(text, &r)
	if err == nil && r.Format != recordFormat {
		return fmt.Errorf("its record has format %d, and this release reads %d: run the release that wrote it",
			r.Format, recordFormat)
	}
	if err == nil {
		err = json.Unmarshal(r.Value, into)
	}
	if err != nil {
		return fmt.Errorf("its record cannot be read: %w: restore the store from a backup", err)
	}
	return nil
}

// recordTable is a table of records of one type.
type recordTable[T any] struct {
	store record.Store
	name  string
	// check completes a record that was read, and returns what is wrong with it. It may be nil.
	check func(x *T, name string) error
}

func (t recordTable[T]) key(name string) record.Key { return record.Key{Table: t.name, Name: name} }

func (t recordTable[T]) decode(r record.Record) (T, error) {
	var x, none T
	err := decodeRecord(r.Value, &x)
	if err == nil && t.check != nil {
		err = t.check(&x, r.Name)
	}
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", t.name, r.Name, err)
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
	value, err := encodeRecord(x)
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
