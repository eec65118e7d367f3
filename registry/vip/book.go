package vip

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// lookGap is how often a Book compares what is kept with what is in use.
	lookGap = 10 * time.Minute
	// absence is for how long nobody here has a host before it is noted to be idle.
	absence = time.Hour
	// seenFor is for how long a Book has itself seen that a host is idle before it gives its addresses to another: within one look
	// whoever has the host in use says so.
	seenFor = 2 * lookGap
	// mostTold is how many addresses are told one by one that go to others at once.
	mostTold = 50
)

// Ledger keeps who has which virtual addresses, for all replicas that share it.
type Ledger interface {
	// Allocate is that of Addresses. What was idle is not any more. Errors: virtualip.ErrExhausted.
	Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error)
	// Allocations are all that have addresses.
	Allocations() iter.Seq[registry.Allocation]
	// Retire notes that keys are idle since a time.
	Retire(ctx context.Context, keys []registry.Key, since time.Time) error
	// Reuse gives the addresses of idle hosts to keys, of those first that have been idle for longest, and returns what was given. It
	// takes those alone that have been idle since the very time that idle says.
	Reuse(ctx context.Context, keys []registry.Key, idle map[registry.Key]time.Time) ([]registry.Handover, error)
}

// BookConfig says what a Book is of.
type BookConfig struct {
	// Ledger keeps the addresses; required.
	Ledger Ledger
	// Moved tells that other hosts than before may have what is kept, as other replicas gave it to them, or the store was restored: it
	// is compared at once. Nil: nothing tells, and it is compared every ten minutes.
	Moved <-chan struct{}
	// Rest is for how long no source of any replica has a host before its addresses may be given to another, by the clocks of
	// replicas. At least 2h, as replicas say within that time that they have it. Default 24h. Whatever the clocks say, this replica
	// has seen for 20m by then that no other one says so.
	Rest time.Duration
	// Audit receives each address that goes to another host, and each host in use here that has lost its own; nil discards them.
	Audit func(audit.Event)
	// Log receives the same; nil discards it.
	Log hclog.Logger
}

// Book knows which hosts are in use on this replica, so that the addresses of those that are nowhere can be given to others once
// there are no free ones. Safe for concurrent use.
type Book struct {
	cfg BookConfig // set once

	again chan struct{} // cap 1; written by holders, read by Run

	mu      sync.Mutex
	holders map[*Holder]bool            // guarded by mu
	owners  map[netip.Addr]registry.Key // guarded by mu: who was told each address
	seen    map[registry.Key]sight      // guarded by mu: what is idle
	dearth  dearth                      // guarded by mu
	looks   int                         // guarded by mu: how often it was compared

	// The following belong to Run.
	missing map[registry.Key]time.Time // what nobody here has, and since when: what is not noted to be idle
	retired map[registry.Key]time.Time // what this replica noted to be idle, and when
}

// NewBook makes a book; Run keeps it.
func NewBook(cfg BookConfig) *Book {
	cfg.Rest = max(cmp.Or(cfg.Rest, 24*time.Hour), 2*time.Hour)
	if cfg.Audit == nil {
		cfg.Audit = func(audit.Event) {}
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	return &Book{cfg: cfg, again: make(chan struct{}, 1), holders: map[*Holder]bool{}, owners: map[netip.Addr]registry.Key{}, missing: map[registry.Key]time.Time{}, retired: map[registry.Key]time.Time{}}
}

// Run compares what is kept with what is in use until ctx ends, and returns nil. What a store does not take is tried again.
func (b *Book) Run(ctx context.Context) error {
	tick := time.NewTicker(lookGap)
	defer tick.Stop()
	for {
		if err := b.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			b.cfg.Log.Warn("it could not be noted which hosts with virtual addresses are in use; tried again", "in", lookGap, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-b.cfg.Moved:
		case <-b.again:
		}
	}
}

// look notes which hosts are idle and which are not, and tells holders whose addresses are others'.
func (b *Book) look(ctx context.Context, now time.Time) error {
	claim, idle := b.compare(now)
	_, err := b.claim(ctx, claim)
	if len(idle) == 0 {
		return err
	}
	if e := b.cfg.Ledger.Retire(ctx, idle, now); e != nil {
		return errors.Join(err, e)
	}
	for _, k := range idle {
		b.retired[k] = now
		delete(b.missing, k)
	}
	return err
}

// compare finds what is noted to be idle and in use here, and what is to be noted to be idle: what nobody here has had for a while.
// What another replica claimed after this one noted it is left alone for the time of a rest.
func (b *Book) compare(now time.Time) (claim, idle []registry.Key) {
	maps.DeleteFunc(b.retired, func(_ registry.Key, at time.Time) bool { return now.Sub(at) >= b.cfg.Rest })
	kept, missing, seen := map[registry.Key][]netip.Addr{}, map[registry.Key]time.Time{}, map[registry.Key]time.Time{}
	told := b.told()
	held := used(told)
	for a := range b.cfg.Ledger.Allocations() {
		if !a.Idle.IsZero() {
			seen[a.Key] = a.Idle
		}
		_, mine := b.retired[a.Key]
		switch {
		case held[a.Key]:
			if kept[a.Key] = a.Addresses; !a.Idle.IsZero() {
				claim = append(claim, a.Key)
			}
		case !a.Idle.IsZero() || mine:
		default:
			since, known := b.missing[a.Key]
			if !known {
				since = now
			}
			if missing[a.Key] = since; now.Sub(since) >= absence {
				idle = append(idle, a.Key)
			}
		}
	}
	b.missing = missing
	b.see(seen, now)
	b.lose(told, kept)
	return claim, idle
}

// claim says that hosts which are noted to be idle are in use.
func (b *Book) claim(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return b.cfg.Ledger.Allocate(ctx, keys)
}

// told are the hosts that somebody here uses, with the addresses that it was told, for another comparison.
func (b *Book) told() map[*Holder]map[registry.Key][]netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	out := make(map[*Holder]map[registry.Key][]netip.Addr, len(b.holders))
	for h := range b.holders {
		out[h] = maps.Clone(h.told)
	}
	return out
}

// used are the hosts of all holders.
func used(told map[*Holder]map[registry.Key][]netip.Addr) map[registry.Key]bool {
	out := map[registry.Key]bool{}
	for _, keys := range told {
		for k := range keys {
			out[k] = true
		}
	}
	return out
}
