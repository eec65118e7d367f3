package shared_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// link is one replica's way to the store that all share. While it is cut, what was read last can be read still, as a copy of
// the store's content can, and nothing is written.
type link struct {
	record.Store
	cut     atomic.Bool
	stale   atomic.Pointer[map[string][]record.Record] // what can be read while it is cut, by table
	commits atomic.Int64                               // that were done
	writes  atomic.Int64                               // in them
	takes   atomic.Int64                               // how long each one takes, in nanoseconds
}

var errAway = errors.New("the store is away")

// sever cuts the link.
func (l *link) sever(tables ...string) {
	old := map[string][]record.Record{}
	for _, t := range tables {
		list, err := l.Store.List(context.Background(), t)
		if err != nil {
			panic(err)
		}
		old[t] = list
	}
	l.stale.Store(&old)
	l.cut.Store(true)
}

// changer is a link to a store that tells what has changed.
type changer struct{ *link }

func (c changer) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	if c.cut.Load() {
		return nil, since, nil
	}
	return c.Store.(record.Changer).Changes(ctx, table, since)
}

func (l *link) mend() { l.cut.Store(false) }

func (l *link) List(ctx context.Context, table string) ([]record.Record, error) {
	if l.cut.Load() {
		return (*l.stale.Load())[table], nil
	}
	return l.Store.List(ctx, table)
}

func (l *link) Commit(ctx context.Context, writes ...record.Write) error {
	if l.cut.Load() {
		return errAway
	}
	select {
	case <-time.After(time.Duration(l.takes.Load())):
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.Store.Commit(ctx, writes...)
	if err == nil {
		l.commits.Add(1)
		l.writes.Add(int64(len(writes)))
	}
	return err
}
