package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Records returns the file as a record.Store. Commits that wait at the same time share a
// transaction.
func (s *Store) Records() record.Store { return s.recs }

var _ record.Store = (*records)(nil)

// records is a Store as a record.Store.
type records struct {
	store    *Store          // immutable
	watchers record.Watchers // safe for concurrent use

	mu      sync.Mutex
	waiting []*recordCommit // guarded by mu
}

// recordCommit is a Commit that waits for a transaction.
type recordCommit struct {
	writes []record.Write
	done   bool  // guarded by Store.writing
	err    error // guarded by Store.writing
}

// AllRecords returns the records of all tables.
func (s *Store) AllRecords(ctx context.Context) ([]record.Record, error) {
	return s.recs.list(ctx, nil)
}

// List implements record.Store.
func (r *records) List(ctx context.Context, table string) ([]record.Record, error) {
	return r.list(ctx, recordKey(record.Key{Table: table}))
}

func (r *records) list(ctx context.Context, prefix []byte) ([]record.Record, error) {
	var out []record.Record
	err := r.store.view(ctx, func(tx *bbolt.Tx) error {
		return scan(tx.Bucket(bucketRecords), prefix, func(rest, v []byte) error {
			key, err := parseRecordKey(slices.Concat(prefix, rest))
			if err != nil {
				return err
			}
			rec, err := parseRecord(key, v)
			out = append(out, rec)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Behind implements record.Store: no other process writes it.
func (r *records) Behind() error { return nil }

// Changes implements record.Store. A mark is the version of each record of the table, by name.
func (r *records) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	list, err := r.List(ctx, table)
	if err != nil {
		return nil, nil, err
	}
	before, _ := since.(map[string]string)
	now := make(map[string]string, len(list))
	var out []record.Record
	for _, rec := range list {
		now[rec.Name] = rec.Version
		if before[rec.Name] != rec.Version {
			out = append(out, rec)
		}
	}
	for name := range before {
		if now[name] == "" {
			out = append(out, record.Record{Key: record.Key{Table: table, Name: name}})
		}
	}
	slices.SortFunc(out, func(a, b record.Record) int { return cmp.Compare(a.Name, b.Name) })
	return out, now, nil
}

// Get implements record.Store.
func (r *records) Get(ctx context.Context, key record.Key) (out record.Record, err error) {
	err = r.store.view(ctx, func(tx *bbolt.Tx) error {
		out, err = parseRecord(key, tx.Bucket(bucketRecords).Get(recordKey(key)))
		return err
	})
	return out, err
}

// Watch implements record.Store.
func (r *records) Watch(ctx context.Context, table string) <-chan struct{} {
	return r.watchers.Watch(ctx, table)
}

// Commit implements record.Store.
func (r *records) Commit(ctx context.Context, writes ...record.Write) error {
	if err := record.Check(writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(writes) == 0 {
		return err
	}
	c := &recordCommit{writes: writes}
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()

	r.store.writing.Lock()
	defer r.store.writing.Unlock()
	if !c.done {
		r.writeWaiting()
	}
	return c.err
}

// writeWaiting writes all waiting commits in one transaction. Its caller holds Store.writing.
func (r *records) writeWaiting() {
	r.mu.Lock()
	group := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	err := r.store.update(func(tx *bbolt.Tx) error {
		for _, c := range group {
			c.err = commit(tx.Bucket(bucketRecords), c.writes)
			if c.err != nil && !errors.Is(c.err, record.ErrConflict) {
				return c.err
			}
		}
		return nil
	})
	for _, c := range group {
		c.done = true
		if err != nil {
			c.err = err
		}
		if c.err == nil {
			r.watchers.Notify(c.writes)
		}
	}
}

// commit does writes. Errors: record.ErrConflict, and then it wrote nothing.
func commit(b *bbolt.Bucket, writes []record.Write) error {
	for _, w := range writes {
		stored, err := parseRecord(w.Key, b.Get(recordKey(w.Key)))
		if w.Version == record.Any {
			continue
		}
		if err != nil {
			return err
		}
		if stored.Version != w.Version {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, record.ErrConflict)
		}
	}
	for _, w := range writes {
		version, err := b.NextSequence()
		if err == nil && w.Value == nil {
			err = b.Delete(recordKey(w.Key))
		} else if err == nil {
			err = b.Put(recordKey(w.Key), append(binary.BigEndian.AppendUint64(nil, version), w.Value...))
		}
		if err != nil {
			return fmt.Errorf("write record %s %s: %w", w.Table, w.Name, err)
		}
	}
	return nil
}

// recordKey is the key of a record: the length of the table, the table and the name. Without a name
// it is the prefix of a table.
func recordKey(k record.Key) []byte {
	return slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(k.Table))), []byte(k.Table), []byte(k.Name))
}

func parseRecordKey(b []byte) (record.Key, error) {
	if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return record.Key{}, fmt.Errorf("%q is not the key of a record", b)
	}
	end := 2 + int(binary.BigEndian.Uint16(b))
	return record.Key{Table: string(b[2:end]), Name: string(b[end:])}, nil
}

// parseRecord decodes a version and a value; without them there is no record.
func parseRecord(key record.Key, v []byte) (record.Record, error) {
	r := record.Record{Key: key}
	if v == nil {
		return r, nil
	}
	if len(v) < 8 {
		return r, fmt.Errorf("record %s %s is damaged: it has %d bytes", key.Table, key.Name, len(v))
	}
	r.Version, r.Value = strconv.FormatUint(binary.BigEndian.Uint64(v), 10), bytes.Clone(v[8:])
	return r, nil
}
