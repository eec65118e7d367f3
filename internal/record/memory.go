package record

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/ashore-mesh/ashore/internal/pmap"
)

// Memory is a Store in memory.
type Memory struct {
	watchers Watchers

	mu       sync.Mutex
	records  pmap.Map[Key, *Record] // guarded by mu
	revision int                    // guarded by mu: of the latest write
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{} }

func (m *Memory) all() pmap.Map[Key, *Record] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records
}

// copied returns a record that the caller may change; r is nil if there is none.
func copied(key Key, r *Record) Record {
	if r == nil {
		return Record{Key: key}
	}
	return Record{Key: key, Value: bytes.Clone(r.Value), Version: r.Version}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key Key) (Record, error) {
	return copied(key, m.all().At(key)), nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, table string) ([]Record, error) {
	out, _, err := m.Changes(ctx, table, nil)
	return out, err
}

// Behind implements Store: no other process writes it.
func (m *Memory) Behind() error { return nil }

// Changes implements Store.
func (m *Memory) Changes(_ context.Context, table string, since Mark) (out []Record, _ Mark, _ error) {
	now := m.all()
	old, _ := since.(pmap.Map[Key, *Record])
	for c := range now.Diff(old) {
		if c.Key.Table == table {
			out = append(out, copied(c.Key, c.New))
		}
	}
	return out, now, nil
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
	next := m.records
	for _, w := range writes {
		if w.Version != Any && w.Version != copied(w.Key, m.records.At(w.Key)).Version {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, ErrConflict)
		}
		if next = next.Without(w.Key); w.Value != nil {
			m.revision++
			next = next.With(w.Key, &Record{w.Key, bytes.Clone(w.Value), strconv.Itoa(m.revision)})
		}
	}
	m.records = next
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
