package writebehind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Encode returns the content of a record. Run calls it, so it must not read data that other
// goroutines change.
type Encode func() ([]byte, error)

// Config configures a Writer.
type Config struct {
	// Save saves records by name, all or none; nil removes one. Required.
	Save func(ctx context.Context, records map[string][]byte) error
	// Part is how many records are encoded and saved at once, at most: less memory, but a crash may
	// save only some of them. Zero: all of them.
	Part int
	// What names the records in log messages. Required.
	What string
	// Log receives a message when saving fails and one when it succeeds again. Required.
	Log hclog.Logger
}

const (
	gather      = 100 * time.Millisecond // how long a record waits for others, to be saved together
	retryAfter  = time.Second            // from a failure to the next try
	saveTimeout = 5 * time.Second        // for one call of Save
)

// Writer saves records in the background.
type Writer struct {
	cfg  Config        // immutable
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	pending map[string]Encode // guarded by mu
	err     error             // guarded by mu; why saving fails
	since   time.Time         // guarded by mu; when err began
}

// New returns a Writer. Run starts it.
func New(cfg Config) *Writer {
	return &Writer{cfg: cfg, wake: make(chan struct{}, 1), pending: map[string]Encode{}}
}

// Put replaces records by name, all in one call of Save; a nil Encode removes one. It does not
// block.
func (w *Writer) Put(records map[string]Encode) {
	w.mu.Lock()
	maps.Copy(w.pending, records)
	w.mu.Unlock()
	task.Poke(w.wake)
}

// Err returns why records cannot be saved, and since when. Nil means that they can.
func (w *Writer) Err() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.err
}

// Run saves records until ctx ends, and then those that are pending.
func (w *Writer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.wake:
		}
		task.Sleep(ctx, gather)
		for !w.flush(ctx) && ctx.Err() == nil {
			task.Sleep(ctx, retryAfter)
		}
	}
	w.flush(ctx) // records that were put during the last flush
	return nil
}

// flush saves all that is pending, also after ctx ended. What cannot be saved stays pending.
func (w *Writer) flush(ctx context.Context) (saved bool) {
	w.mu.Lock()
	taken := w.pending
	w.pending = map[string]Encode{}
	w.mu.Unlock()
	var bad []error // these stay as they were saved last
	var err error
	for len(taken) > 0 && err == nil {
		part := w.take(taken)
		records, errs := encoded(part)
		bad = append(bad, errs...)
		if len(records) > 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			err = w.cfg.Save(ctx, records)
			cancel()
		}
		if err != nil {
			maps.Copy(taken, part)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(errors.Join(append(bad, err)...))
	if err != nil {
		maps.Copy(taken, w.pending) // newer content wins
		w.pending = taken
	}
	return err == nil
}

// take removes a part of the records and returns it.
func (w *Writer) take(from map[string]Encode) map[string]Encode {
	part := map[string]Encode{}
	for name, encode := range from {
		if len(part) == w.cfg.Part && w.cfg.Part > 0 {
			break
		}
		part[name] = encode
		delete(from, name)
	}
	return part
}

// encoded encodes records. Those that cannot be encoded are missing.
func encoded(in map[string]Encode) (records map[string][]byte, bad []error) {
	records = make(map[string][]byte, len(in))
	for name, encode := range in {
		if encode == nil {
			records[name] = nil
			continue
		}
		b, err := encode()
		if err != nil {
			bad = append(bad, fmt.Errorf("encode %q: %w", name, err))
			continue
		}
		records[name] = b
	}
	return records, bad
}

// note records whether saving succeeded. The caller holds mu.
func (w *Writer) note(err error) {
	switch {
	case err != nil && w.err == nil:
		w.since = time.Now()
		w.cfg.Log.Error("cannot save: a restart would use older content", "what", w.cfg.What, "error", err)
	case err == nil && w.err != nil:
		w.cfg.Log.Info("saved again", "what", w.cfg.What, "after", time.Since(w.since).Round(time.Second))
	}
	w.err = err
}
