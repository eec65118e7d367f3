package liblog

import (
	"io"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/grpclog"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

// Log receives messages of libraries. It discards them before Follow is called. The zero value is
// ready. Safe for concurrent use.
type Log struct {
	to      atomic.Pointer[hclog.Logger]
	limiter ratelimit.Limiter // by level
}

// Own returns a log, and makes gRPC and Go's log package use it. Call it at the beginning of main,
// before any function of gRPC.
func Own() *Log {
	l := &Log{}
	grpclog.SetLoggerV2(l.grpc())
	log.SetFlags(0)
	log.SetOutput(l)
	return l
}

// grpc returns a logger for gRPC that writes messages of all severities to l.
func (l *Log) grpc() grpclog.LoggerV2 { return grpclog.NewLoggerV2(l, io.Discard, io.Discard) }

// Follow writes messages to log from now on.
func (l *Log) Follow(log hclog.Logger) {
	to := log.Named("library")
	l.to.Store(&to)
}

// level returns the level for a severity of gRPC. Its errors concern one connection, and its user
// continues; and its warnings, such as each failed attempt to connect, are also reported by that
// user.
func level(severity string) hclog.Level {
	return map[string]hclog.Level{"INFO:": hclog.Trace, "WARNING:": hclog.Debug, "ERROR:": hclog.Warn,
		"FATAL:": hclog.Error}[severity]
}

// Write implements io.Writer for lines of gRPC, "2026/11/23 22:00:00 ERROR: text", and of Go's log
// package, to which net/http reports errors of its peers.
func (l *Log) Write(b []byte) (int, error) {
	to := l.to.Load()
	if to == nil {
		return len(b), nil
	}
	text, at := string(b), hclog.Debug
	if words := strings.SplitN(text, " ", 4); len(words) == 4 && level(words[2]) != hclog.NoLevel {
		at, text = level(words[2]), words[3]
	}
	if at < (*to).GetLevel() {
		return len(b), nil
	}
	if may, dropped := l.limiter.Allow(at.String(), time.Now()); may {
		(*to).Log(at, "message of a library", "text", strings.TrimSpace(text), "not logged before", dropped)
	}
	return len(b), nil
}
