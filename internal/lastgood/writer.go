package lastgood

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Content makes the bytes that are kept under a name.
type Content func() ([]byte, error)

// Writer writes contents behind the back of who puts them, so that a slow or full disk delays nothing.
type Writer struct {
	store  Store
	source string
	pace   Pace
	log    hclog.Logger
	wake   chan struct{} // cap 1
	status chan error    // cap 1; nil: well again. The latest counts
	ending chan struct{} // closed by End
	ended  chan struct{} // closed when Run returns

	mu      sync.Mutex
	waiting map[string]Content // guarded by mu; nil: to be removed
	lapsed  map[string]bool    // guarded by mu: those to be removed with which nothing else has to do
	writing bool               // guarded by mu: some of what was waiting is being written
	rests   []chan struct{}    // guarded by mu: closed once nothing waits
}

// Pace is when a Writer writes.
type Pace struct {
	// Gather is from the first content of a write to the write, so that what belongs together comes into one. Zero: what
	// is put is written at once.
	Gather time.Duration
	// Gap is the least time from the end of a write to the next one.
	Gap time.Duration
}

// NewWriter makes a writer for a source, by name. Run starts it.
func NewWriter(store Store, source string, pace Pace, log hclog.Logger) *Writer {
	return &Writer{
		store: store, source: source, pace: pace, log: log,
		wake: make(chan struct{}, 1), status: make(chan error, 1), ending: make(chan struct{}), ended: make(chan struct{}), waiting: map[string]Content{}, lapsed: map[string]bool{},
	}
}

// Put notes contents to keep, all in one write; nil removes one. Those of lapsed names are removed too: nothing else that is put has to do
// with that, and where the disk does not take all in one write it is done by itself. It does not wait.
func (w *Writer) Put(contents map[string]Content, lapsed ...string) {
	w.mu.Lock()
	maps.Copy(w.waiting, contents)
	for name := range contents {
		delete(w.lapsed, name)
	}
	for _, name := range lapsed {
		w.waiting[name], w.lapsed[name] = nil, true
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Written waits until all that was put is written; false: Run has returned, and it is not.
func (w *Writer) Written() bool {
	rests := make(chan struct{})
	w.mu.Lock()
	w.rests = append(w.rests, rests)
	w.rest()
	w.mu.Unlock()
	select {
	case <-rests:
		return true
	case <-w.ended:
	}
	select {
	case <-rests:
		return true
	default:
		return false
	}
}

// rest tells who waits for it that all is written, if it is. The caller holds mu.
func (w *Writer) rest() {
	if w.writing || len(w.waiting) > 0 {
		return
	}
	for _, c := range w.rests {
		close(c)
	}
	w.rests = nil
}

// End has Run write what is left, and return. It is called once.
func (w *Writer) End() { close(w.ending) }

// Status tells after each write whether it succeeded; the latest counts.
func (w *Writer) Status() <-chan error { return w.status }

const (
	keepTry  = time.Second     // from a failed write to the next try
	keepLast = 5 * time.Second // for one write
)

// Run writes until End is called, and then what is left. It does not end with ctx: what was put before
// the end must not be lost.
func (w *Writer) Run(ctx context.Context) {
	defer close(w.ended)
	failing := false
	for ended := false; !ended; {
		if !failing {
			select {
			case <-w.wake:
			case <-w.ending:
			}
		}
		ended = w.pause(w.pace.Gather)
		err := w.flush(ctx)
		if err != nil && ended {
			w.log.Error("last good contents could not be kept for the next start", "source", w.source, "error", err)
		}
		w.report(err)
		failing = err != nil
		if failing {
			w.pause(max(keepTry, w.pace.Gap))
		} else {
			w.pause(w.pace.Gap)
		}
	}
}

// pause waits, and says whether End was called.
func (w *Writer) pause(d time.Duration) (ended bool) {
	select {
	case <-w.ending:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	select {
	case <-time.After(d):
		return false
	case <-w.ending:
		return true
	}
}

// report replaces what was reported and not read yet.
func (w *Writer) report(err error) {
	select {
	case <-w.status:
	default:
	}
	w.status <- err
}

// flush writes all that waits. What could not be written waits on, unless it is outdated by then.
func (w *Writer) flush(ctx context.Context) error {
	w.mu.Lock()
	waiting, lapsed := w.waiting, w.lapsed
	w.waiting, w.lapsed, w.writing = map[string]Content{}, map[string]bool{}, true
	w.mu.Unlock()
	contents, err := makeAll(waiting)
	if saveErr := w.save(ctx, contents); saveErr != nil {
		err = errors.Join(err, saveErr)
		all := len(contents)
		maps.DeleteFunc(contents, func(name string, _ []byte) bool { return !lapsed[name] })
		if len(contents) == all || w.save(ctx, contents) != nil { // the error is told already
			clear(contents)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range waiting {
		_, written := contents[name]
		if _, newer := w.waiting[name]; written || newer {
			continue
		}
		if w.waiting[name] = c; lapsed[name] {
			w.lapsed[name] = true
		}
	}
	w.writing = false
	w.rest()
	return err
}

// save writes contents, all or none.
func (w *Writer) save(ctx context.Context, contents map[string][]byte) error {
	if len(contents) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
	defer cancel()
	return w.store.SaveLastGood(ctx, w.source, contents)
}

// makeAll is what to write under each name, nil for one to be removed. Those that cannot be made are not among it; the
// error names them.
func makeAll(waiting map[string]Content) (map[string][]byte, error) {
	contents := make(map[string][]byte, len(waiting))
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(waiting)) { // one text for one error
		c := waiting[name]
		if c == nil {
			contents[name] = nil
			continue
		}
		b, err := c()
		if err != nil {
			bad = append(bad, fmt.Errorf("keep %s: %w", name, err))
			continue
		}
		contents[name] = b
	}
	return contents, errors.Join(bad...)
}
