package analyze

import (
	"context"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
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
	wake chan struct{} // capacity 1; written by Publish, read by Run

	mu       sync.Mutex
	context  *push.Context // guarded by mu
	findings []Finding     // guarded by mu; not changed in place
}

// NewBackground returns a Background without findings.
func NewBackground() *Background { return &Background{wake: make(chan struct{}, 1)} }

// Publish sets the context that is analyzed next. It does not wait.
func (b *Background) Publish(c *push.Context) {
	b.mu.Lock()
	b.context = c
	b.mu.Unlock()
	task.Poke(b.wake)
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
		select {
		case <-b.wake: // for the context that is analyzed now
		default:
		}
		b.mu.Lock()
		c := b.context
		b.mu.Unlock()
		latest := Run(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		b.mu.Lock()
		b.findings = latest
		b.mu.Unlock()
	}
}
