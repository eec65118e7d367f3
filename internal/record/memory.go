package record

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// Memory is a Store in memory.
type Memory struct {
	watchers Watchers

	mu       sync.Mutex
	records  map[Key]Record // guarded by mu
	revision uint64         // guarded by mu: of the latest write
	changed  map[Key]uint64 // guarded by mu: the revision of the latest write of each key, deleted ones too
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{records: map[Key]Record{}, changed: map[Key]uint64{}} }

// Get implements Store.
func (m *Memory) Get(_ context.Context, key Key) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[key]
	if !ok {
		return Record{Key: key}, nil
	}
	r.Value = bytes.Clone(r.Value)
	return r, nil
}

// List implements Store.
func (m *Memory) List(_ context.Context, table string) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Record
	for k, r := range m.records {
		if k.Table == table {
			r.Value = bytes.Clone(r.Value)
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Behind implements Store: no other process writes it.
func (m *Memory) Behind() error { return nil }

// Changes implements Store.
func (m *Memory) Changes(_ context.Context, table string, since Mark) ([]Record, Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, _ := since.(uint64)
	var out []Record
	for k, at := range m.changed {
		r, found := m.records[k]
		if k.Table != table || at <= old || since == nil && !found {
			continue
		}
		r.Key, r.Value = k, bytes.Clone(r.Value)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	return out, m.revision, nil
}

// Commit implements Store.
func (m *Memory) Commit(_ context.Context, writes ...Write) error {
	if err := Check(writes); err != nil {
		return err
	}
	if err := m.commit(writes); err != nil {
		return err
	}
	m.watchers.Notify(writes)
	return nil
}

func (m *Memory) commit(writes []Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if w.Version != Any && w.Version != m.records[w.Key].Version {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, ErrConflict)
		}
	}
	for _, w := range writes {
		m.revision++
		m.changed[w.Key] = m.revision
		if w.Value == nil {
			delete(m.records, w.Key)
			continue
		}
		m.records[w.Key] = Record{Key: w.Key, Value: bytes.Clone(w.Value), Version: strconv.FormatUint(m.revision, 10)}
	}
	return nil
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, table string) <-chan struct{} {
	return m.watchers.Watch(ctx, table)
}

// Check returns why no Store can do the writes in one Commit.
func Check(writes []Write) error {
	seen := make(map[Key]bool, len(writes))
	for _, w := range writes {
		switch {
		case len(w.Value) > MaxValue || len(w.Table)+len(w.Name) > MaxName:
			return fmt.Errorf("%.80s %.80s: %w: a value of %d bytes", w.Table, w.Name, ErrTooLarge, len(w.Value))
		case w.Table == "" || w.Name == "":
			return fmt.Errorf("record %q %q: a table and a name are required", w.Table, w.Name)
		case seen[w.Key]:
			return fmt.Errorf("%s %s: named twice in one commit", w.Table, w.Name)
		}
		seen[w.Key] = true
	}
	return nil
}
