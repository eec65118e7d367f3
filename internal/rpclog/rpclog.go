package rpclog

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/grpclog"

	"github.com/ashore-mesh/ashore/internal/pace"
)

// Log takes what gRPC says. Nothing is written before it follows a log. The zero value is ready; safe for concurrent use.
type Log struct {
	log  atomic.Pointer[hclog.Logger]
	pace pace.Actors // of what others can bring about
}

var _ grpclog.LoggerV2 = (*Log)(nil)

// Own makes a log and has gRPC use it. It is for the beginning of main, before anything of gRPC is called.
func Own() *Log {
	l := &Log{}
	grpclog.SetLoggerV2(l)
	return l
}

// Follow has what is said from now on stand in log.
func (l *Log) Follow(log hclog.Logger) {
	log = log.Named("grpc")
	l.log.Store(&log)
}

// say writes a line, when that level is written.
func (l *Log) say(level hclog.Level, text func() string) {
	log := l.log.Load()
	if log == nil || level < (*log).GetLevel() {
		return
	}
	line := strings.TrimSpace(text())
	if may, silent := l.pace.Take(level.String(), time.Now()); may {
		(*log).Log(level, "said by the library", "text", line, "not logged before", silent)
	}
}

// What gRPC calls an error is about one connection, and whoever has that goes on; what it calls a warning, such as each attempt
// that fails, is told by who attempts; the rest is what it does.
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
