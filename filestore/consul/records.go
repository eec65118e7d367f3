package consul

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Records returns the records of identity and registrations. Reads see every commit that ended
// before they began, on any replica. While the store cannot be read they use what is known. A
// commit cannot have both records of registrations and others.
func (s *Store) Records() record.Store { return (*records)(s) }

// records is a Store as a record.Store.
type records Store

var _ record.Store = (*records)(nil)

// logOf returns the log that has a table.
func (r *records) logOf(table string) *replicatedLog {
	switch table {
	case "registration", "replica": // of registry/shared
		return r.registrations
	}
	return r.identity
}

// Get implements record.Store.
func (r *records) Get(ctx context.Context, key record.Key) (record.Record, error) {
	known, err := r.logOf(key.Table).latest(ctx)
	return known.records.At(key).record(key), err
}

// List implements record.Store.
func (r *records) List(ctx context.Context, table string) ([]record.Record, error) {
	known, err := r.logOf(table).latest(ctx)
	return list(known, table), err
}

func list(s *state, table string) (out []record.Record) {
	for name, v := range s.table(table) {
		out = append(out, v.record(record.Key{Table: table, Name: name}))
	}
	return out
}

// Changes implements record.Store.
func (r *records) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	now, err := r.logOf(table).latest(ctx)
	if err != nil {
		return nil, since, err
	}
	old, known := since.(*state)
	if !known {
		return list(now, table), now, nil
	}
	var out []record.Record
	for c := range now.records.Diff(old.records) {
		if c.Key.Table == table {
			out = append(out, c.New.record(c.Key)) // New is nil for a deleted one
		}
	}
	return out, now, nil
}

// Watch implements record.Store. It reports writes of other replicas while Follow runs.
func (r *records) Watch(ctx context.Context, table string) <-chan struct{} {
	return r.logOf(table).watchers.Watch(ctx, table)
}

// Behind implements record.Store.
func (r *records) Behind() error { return r.health.outage() }

// Commit implements record.Store. Errors besides: ErrAway, ErrUnknown.
func (r *records) Commit(ctx context.Context, writes ...record.Write) error {
	if err := record.Check(writes); err != nil || len(writes) == 0 {
		return err
	}
	l := r.logOf(writes[0].Table)
	items := make([]item, len(writes))
	for i, w := range writes {
		if r.logOf(w.Table) != l {
			return fmt.Errorf("%s and %s cannot be written together", writes[0].Table, w.Table)
		}
		if !utf8.ValidString(w.Table) || !utf8.ValidString(w.Name) {
			return fmt.Errorf("record %q %q: the name is not UTF-8", w.Table, w.Name)
		}
		items[i] = item{Table: w.Table, Name: w.Name}
		if w.Value != nil {
			items[i].Value = append([]byte{}, w.Value...)
		}
	}
	_, err := l.commit(ctx, func(s *state) ([]item, error) { return items, s.checkVersions(writes) })
	return err
}

// checkVersions compares records with what the writer has read. Errors: record.ErrConflict.
func (s *state) checkVersions(writes []record.Write) error {
	for _, w := range writes {
		have := s.records.At(w.Key).record(w.Key).Version
		if w.Version != record.Any && w.Version != have {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, record.ErrConflict)
		}
	}
	return nil
}
