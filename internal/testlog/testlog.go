package testlog

import (
	"bytes"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// New returns a logger of level trace whose lines appear in t's output. What is logged after t has
// ended is dropped.
func New(t testing.TB) hclog.Logger {
	t.Helper()
	w := &writer{t: t}
	t.Cleanup(w.close)
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: w, DisableTime: true})
}

// writer writes whole lines to a test.
type writer struct {
	t testing.TB // set once

	mu     sync.Mutex
	closed bool // guarded by mu
}

// Write logs the lines of b. hclog writes one line at a time.
func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed { // a test that has ended panics when it is written to
		w.t.Helper()
		w.t.Logf("%s", bytes.TrimRight(b, "\n"))
	}
	return len(b), nil
}

func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
