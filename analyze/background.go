package analyze

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/push"
)

const (
	// runDelay is the time from a change to the analysis of the mesh.
	runDelay = time.Second
	// runInterval is the shortest time between the starts of two runs.
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

// NewBackground returns a Background. After each run that found a difference it calls report,
// unless that is nil, with the findings that appeared and those that are gone.
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

// Findings returns the findings of the last run, or nil before the first. The caller must not
// change them.
func (b *Background) Findings() []Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.findings
}

// Run analyzes the latest context one second after a change, and at most every 5 seconds. It
// returns nil when ctx ends.
func (b *Background) Run(ctx context.Context) error {
	var last time.Time // start of the last run
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(runDelay, time.Until(last.Add(runInterval)))):
		}
		last = time.Now()
		b.run(ctx)
	}
}

// run analyzes the latest context and reports the differences.
func (b *Background) run(ctx context.Context) {
	select {
	case <-b.wake: // for the context that is analyzed now
	default:
	}
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
	return slices.DeleteFunc(slices.Clone(list), func(f Finding) bool {
		f.Line = 0
		return have[f]
	})
}
