package ratelimit

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// logBurst is how many lines of one kind a peer may cause at once. Two, so that a restart is
// logged.
const logBurst = 2

// Logger writes the lines that peers can cause at will: of each key and message two at once, then
// one a minute, which says how many were left out. Safe for concurrent use.
type Logger struct {
	log   hclog.Logger
	lines Limiter
}

// NewLogger returns a Logger that writes to log.
func NewLogger(log hclog.Logger) *Logger {
	return &Logger{log: log, lines: Limiter{Burst: logBurst, Every: time.Minute}}
}

// Log writes a line, unless its key caused too many of that message. The key is the peer, as far as
// it is authenticated, and what distinguishes reasons.
func (l *Logger) Log(level hclog.Level, key, message string, facts ...any) {
	ok, dropped := l.lines.Allow(key+" "+message, time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		facts = append(facts, "not logged before", dropped)
	}
	l.log.Log(level, message, facts...)
}
