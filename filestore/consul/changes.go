package consul

import (
	"context"

	"github.com/ashore-mesh/ashore/internal/record"
)

var _ record.Changer = (*records)(nil)

// Changes implements record.Changer. It costs what differs.
func (r *records) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	if err := r.store.fresh(ctx); err != nil {
		return nil, since, err
	}
	now := r.store.state.Load()
	old, known := since.(*state)
	if !known {
		return now.list(table), now, nil
	}
	var out []record.Record
	for c := range now.records.Diff(old.records) {
		switch {
		case c.Key.Table != table:
		case c.HasNew:
			out = append(out, c.New.record(record.Key(c.Key)))
		default:
			out = append(out, record.Record{Key: record.Key(c.Key)})
		}
	}
	return out, now, nil
}
