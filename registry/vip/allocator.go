package vip

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
)

// Config configures an Allocator.
type Config struct {
	// Records stores the allocations of all replicas. Required.
	Records record.Store
	// Log receives failures and their end. Required.
	Log hclog.Logger
}

// Allocator allocates virtual IPs. It implements push.Allocator.
type Allocator struct {
	cfg  Config        // immutable
	wake chan struct{} // capacity 1; written by Want, read by Run

	mu      sync.Mutex
	wanted  []string  // guarded by mu
	used    int       // guarded by mu; number of allocated virtual IPs
	failure error     // guarded by mu; of the latest attempt; nil if it succeeded
	since   time.Time // guarded by mu; when failures began
}

const (
	retryGap = 5 * time.Second
	// markGap is how often the allocator looks for hosts to mark as used.
	markGap = time.Hour
)

// New returns an Allocator. Call its Run.
func New(cfg Config) *Allocator { return &Allocator{cfg: cfg, wake: make(chan struct{}, 1)} }

// Want replaces the list of hosts that need virtual IPs. It includes the hosts that have virtual
// IPs, which marks these as used. It does not wait. Safe for concurrent use.
func (a *Allocator) Want(hosts []string) {
	a.mu.Lock()
	a.wanted = hosts
	a.mu.Unlock()
	task.Poke(a.wake)
}

// Run sends the virtual IPs of all hosts first, and again after each change, also by another
// replica. It retries while the store is unavailable. It returns nil when ctx ends.
func (a *Allocator) Run(ctx context.Context, out chan<- registry.VIPs) error {
	changed := a.cfg.Records.Watch(ctx, tableName)
	var sent registry.VIPs
	first := true
	for {
		started := time.Now()
		vips, err := a.allocate(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.setFailure(err)
		if read := err == nil || errors.Is(err, ErrExhausted); read && (first || differs(vips, sent)) {
			select {
			case out <- vips:
				sent, first = vips, false
			case <-ctx.Done():
				return nil
			}
		}
		// A pass reads all records. The pause limits allocation to a tenth of a core.
		task.Sleep(ctx, min(10*time.Since(started), retryGap))
		gap := markGap
		if err != nil {
			gap = retryGap
		}
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-changed:
		case <-time.After(gap):
		}
	}
}

// differs reports whether two maps have different content.
func differs(x, y registry.VIPs) bool {
	for range x.Diff(y) {
		return true
	}
	return false
}

// allocate allocates virtual IPs for the wanted hosts that have none, and returns all of them.
func (a *Allocator) allocate(ctx context.Context) (registry.VIPs, error) {
	a.mu.Lock()
	wanted := a.wanted
	a.mu.Unlock()
	for {
		t, err := readTable(ctx, a.cfg.Records)
		if err != nil {
			return registry.VIPs{}, err
		}
		a.mu.Lock()
		a.used = len(t.byIndex)
		a.mu.Unlock()
		now := time.Now().UTC().Truncate(time.Second)
		todo, full := t.allocate(wanted, now)
		if len(todo) == 0 {
			todo = t.unmarked(wanted, now)
		}
		if len(todo) == 0 {
			return t.vips(), full
		}
		if err := write(ctx, a.cfg.Records, todo); err != nil && !errors.Is(err, record.ErrConflict) {
			return registry.VIPs{}, fmt.Errorf("allocate %d virtual IPs: %w", len(todo), err)
		}
	}
}

func (a *Allocator) setFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (err == nil) == (a.failure == nil) {
		a.failure = err
		return
	}
	a.failure, a.since = err, time.Now()
	if err != nil {
		a.cfg.Log.Warn("cannot allocate virtual IPs; retrying", "error", err)
	} else {
		a.cfg.Log.Info("virtual IPs can be allocated again")
	}
}

// Problems returns a problem while allocation fails, or if nearly all virtual IPs are allocated. Safe
// for concurrent use.
func (a *Allocator) Problems() []feed.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := feed.Problem{Severity: feed.Warning, Source: "virtual IPs"}
	switch {
	case a.failure != nil:
		p.Since = a.since
		p.Text = fmt.Sprintf("new services have no virtual IP, so proxies that capture DNS do not reach them by TCP: %v", a.failure)
	case a.used > capacity*9/10:
		p.Text = fmt.Sprintf("%d of %d virtual IPs are allocated: %s", a.used, capacity, remedy)
	default:
		return nil
	}
	return []feed.Problem{p}
}
