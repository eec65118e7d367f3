package testlog

import (
	"strings"
	"sync"
)

// Text is what a program or a log says. The zero value is ready; safe for concurrent use.
type Text struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write implements io.Writer.
func (t *Text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

// String is all of it.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Take is what was said since it was asked last.
func (t *Text) Take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.text.Reset()
	return t.text.String()
}
