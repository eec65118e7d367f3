package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ashore-mesh/ashore/internal/record"
)

// maxGroup bounds how many commits share a transaction, and with it what one costs in memory.
const maxGroup = 256

// Records returns the file as a record.Store. Commits that wait at the same time share one transaction, so that
// many cost the disk as much as one; a commit that is alone does not wait for others.
func (s *Store) Records() record.Store { return s.recs }

// records is a Store's view as a record.Store. Reads come from the file, whose pages are in memory.
type records struct {
	store    *Store          // set once
	turn     chan struct{}   // cap 1; held by who writes for all that wait
	watchers record.Watchers // safe for concurrent use

	mu      sync.Mutex
	waiting []*recordCommit // guarded by mu; the oldest first
}

// recordCommit is a Commit that waits for its turn.
type recordCommit struct {
	writes []record.Write
	done   chan struct{} // closed when err is set
	err    error
}

func newRecords(s *Store) *records { return &records{store: s, turn: make(chan struct{}, 1)} }

// Get implements record.Store.
func (r *records) Get(ctx context.Context, key record.Key) (record.Record, error) {
	out := record.Record{Key: key}
	err := r.store.view(ctx, func(t *tx) error {
		v, err := t.get(bucketRecords, recordKey(key))
		if err != nil || v == nil {
			return err
		}
		out.Value, out.Version, err = parseRecord(v)
		return err
	})
	if err != nil {
		return record.Record{Key: key}, err
	}
	return out, nil
}

// List implements record.Store.
func (r *records) List(ctx context.Context, table string) ([]record.Record, error) {
	var out []record.Record
	prefix := recordKey(record.Key{Table: table})
	err := r.store.view(ctx, func(t *tx) error {
		return t.scan(bucketRecords, prefix, func(k, v []byte) error {
			rec := record.Record{Key: record.Key{Table: table, Name: string(k[len(prefix):])}}
			var err error
			rec.Value, rec.Version, err = parseRecord(v)
			out = append(out, rec)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Watch implements record.Store.
func (r *records) Watch(ctx context.Context, table string) <-chan struct{} {
	return r.watchers.Watch(ctx, table)
}

// Commit implements record.Store. When ctx ends before its turn, nothing is written and the error is that of ctx.
func (r *records) Commit(ctx context.Context, writes ...record.Write) error {
	if err := record.Check(writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(writes) == 0 {
		return err
	}
	c := &recordCommit{writes: writes, done: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	for {
		select {
		case <-c.done: // another one wrote for this one
			return c.err
		case r.turn <- struct{}{}:
			r.writeWaiting()
			<-r.turn
		case <-ctx.Done():
			if r.withdraw(c) {
				return ctx.Err()
			}
			<-c.done
			return c.err
		}
	}
}

// withdraw takes c back, unless it is being written.
func (r *records) withdraw(c *recordCommit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting, c)
	if i < 0 {
		return false
	}
	r.waiting = slices.Delete(r.waiting, i, i+1)
	return true
}

// writeWaiting writes what waits. Its caller has the turn.
func (r *records) writeWaiting() {
	r.mu.Lock()
	n := min(len(r.waiting), maxGroup)
	group := slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	r.mu.Unlock()
	if n == 0 {
		return // another one's turn did it
	}
	if r.writeGroup(group) != nil && n > 1 { // each by itself, so that one does not fail for another's sake
		for _, c := range group {
			_ = r.writeGroup([]*recordCommit{c}) // it is told
		}
	}
	for _, c := range group {
		if c.err == nil {
			r.watchers.Tell(c.writes)
		}
		close(c.done)
	}
}

// writeGroup writes commits in one transaction, and sets the error of each. It returns that of the transaction.
func (r *records) writeGroup(group []*recordCommit) error {
	r.store.writing.Lock()
	defer r.store.writing.Unlock()
	err := r.store.update(func(t *tx) error {
		version, err := recordVersion(t)
		if err != nil {
			return err
		}
		first := version
		for _, c := range group {
			if c.err = checkVersions(t, c.writes); errors.Is(c.err, record.ErrConflict) {
				continue
			}
			if c.err != nil {
				return c.err
			}
			if version, err = putRecords(t, c.writes, version); err != nil {
				return err
			}
		}
		if version == first {
			return nil
		}
		return t.put(bucketRecords, versionKey(), binary.BigEndian.AppendUint64(nil, version))
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrClosed) {
		err = r.store.unkept(err)
	}
	for _, c := range group {
		c.err = err
	}
	return err
}

// checkVersions compares what is there with what the writers read. Errors: record.ErrConflict.
func checkVersions(t *tx, writes []record.Write) error {
	for _, w := range writes {
		if w.Version == record.Any {
			continue
		}
		v, err := t.get(bucketRecords, recordKey(w.Key))
		if err != nil {
			return err
		}
		have := ""
		if v != nil {
			if _, have, err = parseRecord(v); err != nil {
				return err
			}
		}
		if have != w.Version {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, record.ErrConflict)
		}
	}
	return nil
}

// putRecords does writes and returns the version of the last one.
func putRecords(t *tx, writes []record.Write, version uint64) (uint64, error) {
	for _, w := range writes {
		version++
		var err error
		if w.Value == nil {
			err = t.delete(bucketRecords, recordKey(w.Key))
		} else {
			err = t.put(bucketRecords, recordKey(w.Key), append(binary.BigEndian.AppendUint64(nil, version), w.Value...))
		}
		if err != nil {
			return version, err
		}
	}
	return version, nil
}

// recordKey is the key of a record: the length of the table's name, the table and the name, so that the records of a
// table stand together in the order of their names and no two keys are alike. Without a name it is the start of the
// keys of a table.
func recordKey(k record.Key) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 2+len(k.Table)+len(k.Name)), uint64(len(k.Table)))
	return append(append(b, k.Table...), k.Name...)
}

// versionKey is the key of the latest version of all records. No record has it: that of a table without a name.
func versionKey() []byte { return []byte{0} }

// recordVersion is the latest version, 0 before the first.
func recordVersion(t *tx) (uint64, error) {
	v, err := t.get(bucketRecords, versionKey())
	switch {
	case err != nil || v == nil:
		return 0, err
	case len(v) != 8:
		return 0, fmt.Errorf("the version of the records has %d bytes", len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// parseRecord is the value and the version of a record, a copy.
func parseRecord(v []byte) ([]byte, string, error) {
	if len(v) < 8 {
		return nil, "", fmt.Errorf("a record of %d bytes", len(v))
	}
	value := bytes.Clone(v[8:])
	if value == nil {
		value = []byte{}
	}
	return value, strconv.FormatUint(binary.BigEndian.Uint64(v), 10), nil
}
