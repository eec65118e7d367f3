package envoy

import (
	"bytes"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logFormat makes Envoy write level and text with a tab between: logWriter reads it.
const logFormat = "%l\t%v"

// maxLogLine bounds a line of Envoy's log; the rest of a longer one becomes lines of its own.
const maxLogLine = 64 << 10

// logWriter logs what Envoy writes and keeps its last error, which may be why it ended. For one
// goroutine.
type logWriter struct {
	log   hclog.Logger
	rest  []byte      // the line that is not complete yet
	level hclog.Level // of the last line, NoLevel before the first; lines without a level continue it
	worst string      // the last line that was an error or worse; empty: none
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
func (w *logWriter) Close() { w.line(string(w.rest)) }

// line logs one line.
func (w *logWriter) line(text string) {
	name, rest, _ := strings.Cut(text, "\t")
	if level := envoyLevel(name); level != hclog.NoLevel {
		w.level, text = level, rest
	} else if w.level == hclog.NoLevel {
		w.level = hclog.Error // what Envoy writes before its log is set up: wrong arguments, missing libraries
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	if w.level >= hclog.Error {
		w.worst = strings.TrimSpace(text)
	}
	w.log.Log(w.level, text)
}

// envoyLevel returns Envoy's level as ours; NoLevel when it is none.
func envoyLevel(name string) hclog.Level {
	switch name {
	case "warning":
		return hclog.Warn
	case "critical":
		return hclog.Error
	}
	return hclog.LevelFromString(name)
}
