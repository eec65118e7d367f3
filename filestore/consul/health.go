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
	"github.com/ashore-mesh/ashore/internal/record"
)

// health is whether the logs can be read, and whether Consul accepts writes. Safe for concurrent
// use.
type health struct {
	log      hclog.Logger
	watchers record.Watchers
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
	was := h.errs[name]
	if err == nil && was == nil || err != nil && was != nil && err.Error() == was.Error() {
		return
	}
	if err == nil {
		delete(h.errs, name)
	} else {
		h.errs[name] = err
	}
	before := h.read
	switch err := h.cause(); {
	case err == nil:
		h.read = config.Outage{}
		h.log.Info("the store in Consul can be read again", "after", time.Since(before.Since).Round(time.Second))
	case before.Error == "":
		h.read = config.Outage{Error: err.Error(), Since: since}
		h.log.Error("the store in Consul cannot be read: its last known content stays active, and nothing can be written",
			"error", err)
		h.interrupt()
	case before.Error != err.Error():
		h.read.Error = err.Error()
		h.log.Warn("the store in Consul still cannot be read", "error", err)
	}
	h.changed()
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

// setWrite records whether Consul accepts writes, as with a token that may only read.
func (h *health) setWrite(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && h.write.Error == "":
		return
	case err == nil:
		h.log.Info("Consul accepts writes to the store again", "after", time.Since(h.write.Since).Round(time.Second))
		h.write = config.Outage{}
	case h.write.Error == "":
		h.log.Error("Consul refuses writes to the store", "error", err)
		h.write = config.Outage{Error: err.Error(), Since: time.Now()}
	default:
		h.write.Error = err.Error()
		return
	}
	h.changed()
}

// watch returns a channel that receives after each change, until ctx ends.
func (h *health) watch(ctx context.Context) <-chan struct{} { return h.watchers.Watch(ctx, "") }

func (h *health) changed() { h.watchers.Notify([]record.Write{{}}) }

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

// outages returns why the logs cannot be read, and why Consul refuses writes.
func (h *health) outages() (read, write config.Outage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read, h.write
}
