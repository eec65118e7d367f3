package agent

import (
	"bytes"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logFormat makes Envoy write level, part and text with tabs between: logWriter reads it.
const logFormat = "%l\t%n\t%v"

// maxLogLine bounds a line of Envoy's log; the rest of a longer one becomes lines of its own.
const maxLogLine = 64 << 10

// logWriter logs what Envoy writes and keeps its last error, which may be why it ended. For one goroutine.
type logWriter struct {
	log   hclog.Logger
	rest  []byte // the line that is not complete yet
	level string // of the last line; lines without a level continue it
	part  string
	worst string // the last line that was an error or worse; empty: none
}

// Write takes what Envoy wrote; lines may come in pieces. It never fails.
func (w *logWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, complete := bytes.Cut(w.rest, []byte("\n"))
		if !complete && len(w.rest) < maxLogLine {
			return len(b), nil
		}
		w.line(string(line))
		w.rest = rest
	}
}

// Close logs a last line without an end.
func (w *logWriter) Close() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// line logs one line.
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
