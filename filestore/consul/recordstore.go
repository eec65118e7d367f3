package consul

import (
	"context"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Records returns what replicas share besides objects. Reads see every commit that ended before
// they began, of any replica, as long as Consul answers; else they go by what was known last.
func (s *Store) Records() record.Store { return s.recs }

var _ record.Follower = (*records)(nil)

// records is a Store's view as a record.Store.
type records struct{ store *Store }

// Get implements record.Store.
func (r *records) Get(ctx context.Context, key record.Key) (record.Record, error) {
	if err := r.store.fresh(ctx); err != nil {
		return record.Record{Key: key}, err
	}
	return r.store.state.Load().records.At(recordKey(key)).record(key), nil
}

// List implements record.Store.
func (r *records) List(ctx context.Context, table string) ([]record.Record, error) {
	if err := r.store.fresh(ctx); err != nil {
		return nil, err
	}
	return r.store.state.Load().list(table), nil
}

// Watch implements record.Store. It hears of other replicas while Follow runs.
func (r *records) Watch(ctx context.Context, table string) <-chan struct{} {
	return r.store.watchers.Watch(ctx, table)
}

// Behind implements record.Follower.
func (r *records) Behind() error { return r.store.standing.why() }

// Commit implements record.Store. When ctx ends before its turn, nothing is written and the error
// is that of ctx. Errors besides: ErrAway, ErrUnknown.
func (r *records) Commit(ctx context.Context, writes ...record.Write) error {
	if err := record.Check(writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(writes) == 0 {
		return err
	}
	c := &commit{Records: make([]recordWrite, len(writes))}
	for i, w := range writes {
		c.Records[i] = recordWrite{Table: []byte(w.Table), Name: []byte(w.Name)}
		if w.Value != nil {
			c.Records[i].Value = append([]byte{}, w.Value...)
		}
	}
	_, err := r.store.propose(ctx, false, c, func(s *state) (*commit, error) { return c, s.checkVersions(writes) })
	return err
}

// checkVersions compares what is there with what the writers read. Errors: record.ErrConflict.
func (s *state) checkVersions(writes []record.Write) error {
	for _, w := range writes {
		if w.Version == record.Any {
			continue
		}
		have := ""
		if v, ok := s.records.Get(recordKey(w.Key)); ok {
			have = v.version
		}
		if have != w.Version {
			return fmt.Errorf("%s %s: %w", w.Table, w.Name, record.ErrConflict)
		}
	}
	return nil
}
