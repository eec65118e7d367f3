package consul

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/task"
)

// health is whether the logs can be read, and whether Consul accepts writes. Safe for concurrent
// use.
type health struct {
	log      hclog.Logger
	watchers task.Broadcaster
	stopping atomic.Bool // the replica stops

	mu    sync.Mutex                    // guards the following
	errs  map[string]error              // why a log cannot be read, by its name
	read  config.Outage                 // why one of the logs cannot be read
	write config.Outage                 // why Consul refuses writes
	waits map[string]context.CancelFunc // ends the wait of a log for changes
}

func newHealth(log hclog.Logger) *health {
	return &health{log: log, errs: map[string]error{}, waits: map[string]context.CancelFunc{}}
}

// setRead records whether a log could be read. An outage that begins is dated since.
func (h *health) setRead(name string, err error, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.errs, name)
	if err != nil {
		h.errs[name] = err
	}
	if h.set(&h.read, h.cause(), since, "read") {
		h.interrupt()
	}
}

// setWrite records whether Consul accepts writes, as with a token that may only read.
func (h *health) setWrite(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(&h.write, err, time.Now(), "write")
}

// set records how something ended that is done again and again, and reports whether an outage begins.
// The caller holds mu.
func (h *health) set(o *config.Outage, err error, since time.Time, what string) (begins bool) {
	before := *o
	switch {
	case err == nil && before.Error == "", err != nil && err.Error() == before.Error:
		return false
	case err == nil:
		*o = config.Outage{}
		h.log.Info("the store in Consul works again", "operation", what, "after", time.Since(before.Since).Round(time.Second))
	case before.Error == "":
		*o = config.Outage{Error: err.Error(), Since: since}
		h.log.Error("the store in Consul fails: its last known content stays active", "operation", what, "error", err)
	default:
		o.Error = err.Error()
		h.log.Warn("the store in Consul still fails", "operation", what, "error", err)
	}
	h.watchers.Notify()
	return before.Error == ""
}

// get returns an outage.
func (h *health) get(o *config.Outage) config.Outage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *o
}

// cause is why a log cannot be read; nil: all can. The caller holds mu.
func (h *health) cause() error {
	for _, name := range slices.Sorted(maps.Keys(h.errs)) {
		return h.errs[name]
	}
	return nil
}

// outage is why a log cannot be read; nil: all can.
func (h *health) outage() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause()
}

// watch returns a channel that receives after each change, until ctx ends.
func (h *health) watch(ctx context.Context) <-chan struct{} { return h.watchers.Watch(ctx) }

// wait returns the context for a log's wait for changes. The beginning of an outage ends it, so
// that a connection that hangs does not hide the end of the outage.
func (h *health) wait(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	h.waits[name] = cancel
	return ctx, cancel
}

// suspect has every log check at once whether it can be read, as after a write that failed.
func (h *health) suspect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt()
}

// interrupt ends all waits. The caller holds mu.
func (h *health) interrupt() {
	for _, cancel := range h.waits {
		cancel()
	}
}
