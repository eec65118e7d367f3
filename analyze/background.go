package analyze

import (
	"context"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/push"
)

const (
	// settleTime is how long the mesh must be quiet before it is analyzed.
	settleTime = time.Second
	// runInterval is the shortest time between two runs, and the longest wait for a quiet moment.
	runInterval = 5 * time.Second
)

// Background analyzes the latest context after changes, in one goroutine. Safe for concurrent use.
type Background struct {
	report func(appeared, gone []Finding) // immutable; may be nil
	wake   chan struct{}                  // capacity 1; written by Publish, read by Run

	mu       sync.Mutex
	context  *push.Context // guarded by mu
	findings []Finding     // guarded by mu; not changed in place
}

// NewBackground returns a Background. After each run that found a difference it calls report, unless that is nil, with
// the findings that appeared and those that are gone.
func NewBackground(report func(appeared, gone []Finding)) *Background {
	return &Background{report: report, wake: make(chan struct{}, 1)}
}

// Publish sets the context that is analyzed next. It does not wait.
func (b *Background) Publish(c *push.Context) {
	b.mu.Lock()
	b.context = c
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Findings returns the findings of the last run, or nil before the first. The caller must not change them.
func (b *Background) Findings() []Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.findings
}

// Run analyzes each published context once the mesh has been quiet for a second, and at most every 5 seconds. It
// returns nil when ctx ends.
func (b *Background) Run(ctx context.Context) error {
	var last time.Time // start of the last run
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		}
		if !b.settle(ctx, last) {
			return nil
		}
		last = time.Now()
		b.run(ctx)
	}
}

// settle waits until the mesh is quiet, or for runInterval, but at least until the next run is due. It returns false if
// ctx ends first.
func (b *Background) settle(ctx context.Context, last time.Time) bool {
	latest := time.Now().Add(runInterval)
	next := time.Now().Add(settleTime)
	for {
		if due := last.Add(runInterval); next.Before(due) {
			next = due
		}
		select {
		case <-ctx.Done():
			return false
		case <-b.wake:
			next = time.Now().Add(settleTime)
			if next.After(latest) {
				next = latest
			}
		case <-time.After(time.Until(next)):
			return true
		}
	}
}

// run analyzes the latest context and reports the differences.
func (b *Background) run(ctx context.Context) {
	b.mu.Lock()
	c, before := b.context, b.findings
	b.mu.Unlock()
	latest := Run(ctx, c)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	b.findings = latest
	b.mu.Unlock()
	appeared, gone := missing(latest, before), missing(before, latest)
	if b.report != nil && len(appeared)+len(gone) > 0 {
		b.report(appeared, gone)
	}
}

// missing returns the findings of list that other does not have. It ignores their lines.
func missing(list, other []Finding) []Finding {
	have := map[Finding]bool{}
	for _, f := range other {
		f.Line = 0
		have[f] = true
	}
	var out []Finding
	for _, f := range list {
		key := f
		key.Line = 0
		if !have[key] {
			out = append(out, f)
		}
	}
	return out
}
