package liblog

import (
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/grpclog"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

// Log takes what gRPC, and Go's own log, are told. Nothing is written before it follows a log. The
// zero value is ready; safe for concurrent use.
type Log struct {
	to      atomic.Pointer[hclog.Logger]
	limiter ratelimit.Limiter // by level
}

var _ grpclog.LoggerV2 = (*Log)(nil)

// Own makes a log and has gRPC and Go's own log use it. It is for the beginning of main, before
// anything of theirs is called.
func Own() *Log {
	l := &Log{}
	grpclog.SetLoggerV2(l)
	log.SetFlags(0)
	log.SetOutput(l)
	return l
}

// Write implements io.Writer for Go's own log: net/http tells there of what its peers do.
func (l *Log) Write(line []byte) (int, error) {
	l.say(onWarning, func() string { return string(line) })
	return len(line), nil
}

// Follow has what is said from now on stand in log.
func (l *Log) Follow(log hclog.Logger) {
	to := log.Named("library")
	l.to.Store(&to)
}

// say writes a line, when that level is written.
func (l *Log) say(level hclog.Level, text func() string) {
	to := l.to.Load()
	if to == nil || level < (*to).GetLevel() {
		return
	}
	line := strings.TrimSpace(text())
	if may, silent := l.limiter.Allow(level.String(), time.Now()); may {
		(*to).Log(level, "said by a library", "text", line, "not logged before", silent)
	}
}

// What gRPC calls an error is about one connection, and whoever has that goes on; what it calls a
// warning, such as each attempt that fails, is told by who attempts; the rest is what it does.
const onError, onWarning, onInfo = hclog.Warn, hclog.Debug, hclog.Trace

// Info implements grpclog.LoggerV2.
func (l *Log) Info(args ...any) { l.say(onInfo, func() string { return fmt.Sprint(args...) }) }

// Infoln implements grpclog.LoggerV2.
func (l *Log) Infoln(args ...any) { l.say(onInfo, func() string { return fmt.Sprintln(args...) }) }

// Infof implements grpclog.LoggerV2.
func (l *Log) Infof(format string, args ...any) {
	l.say(onInfo, func() string { return fmt.Sprintf(format, args...) })
}

// Warning implements grpclog.LoggerV2.
func (l *Log) Warning(args ...any) { l.say(onWarning, func() string { return fmt.Sprint(args...) }) }

// Warningln implements grpclog.LoggerV2.
func (l *Log) Warningln(args ...any) {
	l.say(onWarning, func() string { return fmt.Sprintln(args...) })
}

// Warningf implements grpclog.LoggerV2.
func (l *Log) Warningf(format string, args ...any) {
	l.say(onWarning, func() string { return fmt.Sprintf(format, args...) })
}

// Error implements grpclog.LoggerV2.
func (l *Log) Error(args ...any) { l.say(onError, func() string { return fmt.Sprint(args...) }) }

// Errorln implements grpclog.LoggerV2.
func (l *Log) Errorln(args ...any) { l.say(onError, func() string { return fmt.Sprintln(args...) }) }

// Errorf implements grpclog.LoggerV2.
func (l *Log) Errorf(format string, args ...any) {
	l.say(onError, func() string { return fmt.Sprintf(format, args...) })
}

// Fatal implements grpclog.LoggerV2: the process ends.
func (l *Log) Fatal(args ...any) { l.fatal(fmt.Sprint(args...)) }

// Fatalln implements grpclog.LoggerV2: the process ends.
func (l *Log) Fatalln(args ...any) { l.fatal(fmt.Sprintln(args...)) }

// Fatalf implements grpclog.LoggerV2: the process ends.
func (l *Log) Fatalf(format string, args ...any) { l.fatal(fmt.Sprintf(format, args...)) }

func (l *Log) fatal(text string) {
	l.say(hclog.Error, func() string { return text })
	os.Exit(1) // gRPC does not go on after that
}

// V implements grpclog.LoggerV2: nothing beyond the usual is said.
func (l *Log) V(level int) bool { return level <= 0 }
