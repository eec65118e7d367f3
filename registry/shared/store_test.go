package shared_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// link is the connection of one replica to the store. While it is down, reads return what was there
// before, as those from a copy of the store do, and writes fail.
type link struct {
	*record.Memory
	before atomic.Pointer[[]record.Record] // the replicas when it went down; nil: it is up
	writes atomic.Int64                    // records written
	takes  atomic.Int64                    // how long a write takes, in nanoseconds
}

var errUnavailable = errors.New("the store is unavailable")

// setDown interrupts or restores the connection.
func (l *link) setDown(down bool) {
	l.before.Store(nil)
	if list, err := l.Memory.List(context.Background(), "replica"); down && err == nil {
		l.before.Store(&list)
	}
}

func (l *link) List(ctx context.Context, table string) ([]record.Record, error) {
	if list := l.before.Load(); list != nil {
		return *list, nil
	}
	return l.Memory.List(ctx, table)
}

func (l *link) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	if l.before.Load() != nil {
		return nil, since, nil
	}
	return l.Memory.Changes(ctx, table, since)
}

func (l *link) Commit(ctx context.Context, writes ...record.Write) error {
	if l.before.Load() != nil {
		return errUnavailable
	}
	select {
	case <-time.After(time.Duration(l.takes.Load())):
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.Memory.Commit(ctx, writes...)
	if err == nil {
		l.writes.Add(int64(len(writes)))
	}
	return err
}
