package envoy

import (
	"bytes"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logFormat is the form of Envoy's log that logWriter reads: level, tab, text.
const logFormat = "%l\t%v"

// maxLogLine is the maximum length of a line, in bytes. A longer one becomes several lines.
const maxLogLine = 64 << 10

// logWriter logs what Envoy writes, and keeps the last error as the probable reason of its end. It
// is for one goroutine.
type logWriter struct {
	log   hclog.Logger
	rest  []byte      // an incomplete line
	level hclog.Level // of the last line, NoLevel before the first; lines without a level continue it
	worst string      // the last line at level error or above; empty: none
}

// Write logs the complete lines. It never fails.
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

// Close logs an incomplete last line.
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
