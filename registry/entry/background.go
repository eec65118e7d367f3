package entry

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Lender is an Addresses that keeps them while they are in use.
type Lender interface {
	Addresses
	// Release says that keys are not used any more by who asked for them. In time others may be given their addresses.
	Release(keys []registry.Key)
	// Lost returns once those of keys whose addresses are not theirs any more: they are to be asked for anew.
	Lost() []registry.Key
	// Losing tells that there may be some of Lost. Nil: there never are.
	Losing() <-chan struct{}
}

// Background is a Deriver that never waits for addresses: Run asks for them, and a service goes without
// until the answer. It implements push.Deriver.
type Background struct {
	*Deriver
	allocator *allocator

	pending bool // belongs to the goroutine that calls Derive
}

// NewBackground makes one that asks addresses, again after retry when they are refused. Zero means 5s. The workloads that
// registered with runtime become endpoints too; nil: nobody registers.
func NewBackground(addresses Lender, runtime Runtime, retry time.Duration) *Background {
	a := newAllocator(addresses, cmp.Or(retry, 5*time.Second))
	d := newDeriver(a, runtime)
	d.release = a.release
	return &Background{Deriver: d, allocator: a}
}

// Run asks for addresses and follows who registers until ctx ends, and calls again whenever Derive should be called
// again. It is still there while the store does not answer, whatever becomes of ctx, unless the store heeds that.
func (b *Background) Run(ctx context.Context, again func()) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.allocator.run(ctx, again) })
	if b.runtime != nil {
		group.Go(func() error { b.follow(ctx, again); return nil })
	}
	return group.Wait()
}

// follow calls again whenever somebody registered, left or reported.
func (b *Background) follow(ctx context.Context, again func()) {
	changed := b.runtime.Watch(ctx)
	again() // for what changed before it looked
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			again()
			rest.Reset(followGap)
		}
	}
}

// followGap is the least time between two calls: when a fleet comes back, many are taken in at once.
const followGap = 10 * time.Millisecond

// Derive returns the services that changed since the last call, and those that an address was found for.
func (b *Background) Derive(ctx context.Context, objects pmap.Map[config.Key, *config.Object]) feed.Batch[registry.Instances] {
	for _, k := range b.allocator.lost() {
		if b.allocated[k] != nil {
			delete(b.allocated, k)
			b.wanting[k] = true
		}
	}
	out := b.Deriver.Derive(ctx, objects)
	b.pending = b.allocator.only(b.wanting)
	return out
}

// Pending says that the last Derive returned services without an address that may get one soon: the
// store was asked and did not refuse it. Run will call again, or has done so meanwhile.
func (b *Background) Pending() bool { return b.pending }
