package consul

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/record/recordtest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// The store keeps every promise of both contracts, by itself and as several replicas that are used
// in turn.
func TestContracts(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, manyConnections())
	t.Run("records", func(t *testing.T) {
		t.Parallel()
		recordtest.Run(t, func(t *testing.T) record.Store { return newSite(agent).open(t).Records() })
	})
	t.Run("records of replicas", func(t *testing.T) {
		t.Parallel()
		recordtest.Run(t, func(t *testing.T) record.Store {
			s := newSite(agent)
			return replicas{s.open(t).Records(), s.open(t).Records(), s.open(t).Records()}
		})
	})
	t.Run("records with snapshots", func(t *testing.T) {
		t.Parallel()
		recordtest.Run(t, func(t *testing.T) record.Store {
			s := newSite(agent)
			s.compact = 5
			return replicas{s.open(t).Records(), s.open(t).Records()}
		})
	})
	t.Run("objects", func(t *testing.T) {
		t.Parallel()
		configtest.TestStore(t, func(t *testing.T) config.Store { return newSite(agent).open(t) }, reopen)
	})
}

// reopen is another replica of the same store.
func reopen(t *testing.T, s config.Store) config.Store {
	t.Helper()
	o := s.(*Store).cfg.Options
	return site{address: o.Address, prefix: o.Prefix}.open(t)
}

// replicas are used in turn, as by clients that move.
type replicas []record.Store

func (r replicas) any() record.Store { return r[rand.IntN(len(r))] }

func (r replicas) Get(ctx context.Context, key record.Key) (record.Record, error) {
	return r.any().Get(ctx, key)
}

func (r replicas) List(ctx context.Context, table string) ([]record.Record, error) {
	return r.any().List(ctx, table)
}

func (r replicas) Commit(ctx context.Context, writes ...record.Write) error {
	return r.any().Commit(ctx, writes...)
}

func (r replicas) Watch(ctx context.Context, table string) <-chan struct{} {
	return r.any().Watch(ctx, table)
}

// Changes is always that of one replica: only the store that returned a mark can use it.
func (r replicas) Changes(ctx context.Context, table string, since record.Mark) ([]record.Record, record.Mark, error) {
	return r[0].Changes(ctx, table, since)
}

func (r replicas) Behind() error { return r[0].Behind() }
