package agent

import (
	"bytes"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// logFormat makes Envoy write level, part and text with tabs between: logWriter reads it.
const logFormat = "%l\t%n\t%v"

// maxLogLine bounds a line of Envoy's log; the rest of a longer one becomes lines of its own.
const maxLogLine = 64 << 10

// logWriter passes Envoy's log on to ours and keeps the worst recent line as a reason why Envoy may have ended.
type logWriter struct {
	log hclog.Logger // set once

	mu    sync.Mutex
	rest  []byte // guarded by mu: the line that is not complete yet
	level string // guarded by mu: of the last line; lines without a level continue it
	part  string // guarded by mu
	worst string // guarded by mu: the last error or worse, without what follows it
}

// Write takes what Envoy wrote; lines may come in pieces. It never fails.
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) < maxLogLine {
			return len(b), nil
		}
		if i < 0 {
			w.line(string(w.rest))
			w.rest = w.rest[:0]
			return len(b), nil
		}
		w.line(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
}

// Close passes on a last line without an end.
func (w *logWriter) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// Worst is the last line that was an error or worse; empty when there was none.
func (w *logWriter) Worst() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst
}

// line logs one line. Only executed with mu held.
func (w *logWriter) line(text string) {
	if parts := strings.SplitN(text, "\t", 3); len(parts) == 3 && envoyLevel(parts[0]) != hclog.NoLevel {
		w.level, w.part, text = parts[0], parts[1], parts[2]
	} else if w.level == "" {
		w.level, w.part = "error", "start" // what Envoy writes before its log is set up: wrong arguments, missing libraries
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	level := envoyLevel(w.level)
	if level >= hclog.Error {
		w.worst = strings.TrimSpace(text)
	}
	w.log.Log(level, text, "part", w.part)
}

// envoyLevel is Envoy's level as ours; NoLevel when it is none.
func envoyLevel(name string) hclog.Level {
	switch name {
	case "trace":
		return hclog.Trace
	case "debug":
		return hclog.Debug
	case "info":
		return hclog.Info
	case "warning":
		return hclog.Warn
	case "error", "critical":
		return hclog.Error
	default:
		return hclog.NoLevel
	}
}
