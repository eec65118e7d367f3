package agent

import (
	"context"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// killAfter is how long Envoy may take to end once it was asked to.
const killAfter = 5 * time.Second

// childArguments are those of an Envoy that is a child.
func childArguments(s *Settings, bootstrap string) []string {
	return append(commonArguments(s), "--config-path", bootstrap, "--disable-hot-restart", "--log-format", logFormat)
}

// commonArguments are those of every Envoy, for settings that Complete has accepted.
func commonArguments(s *Settings) []string {
	return []string{
		"--concurrency", strconv.Itoa(s.Envoy.Concurrency),
		"--drain-time-s", seconds(s.Envoy.DrainTime),
		// Every connection is asked to close with its next response; "gradual" would reach few
		// within a short drain.
		"--drain-strategy", "immediate",
		"--log-level", s.Envoy.LogLevel,
	}
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }

// process is one run of Envoy.
type process struct {
	path   string
	args   []string
	stdout io.Writer    // access logs
	log    hclog.Logger // Envoy's own lines

	pid atomic.Int64
}

// PID is Envoy's process; zero when none runs.
func (p *process) PID() int { return int(p.pid.Load()) }

// exit is how a run of Envoy ended.
type exit struct {
	// err says how: the exit code or signal; nil when it ended by itself without complaint.
	err error
	// reason is the last error that Envoy wrote; may be empty.
	reason string
	// lived is how long it ran.
	lived time.Duration
}

func (e exit) String() string {
	text := "it ended by itself"
	if e.err != nil {
		text = e.err.Error()
	}
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

// run starts Envoy and returns when it has ended. When ctx ends, Envoy is asked to end and killed
// if it does not. Envoy does not outlive this process, even when that is killed.
func (p *process) run(ctx context.Context) exit {
	// The kernel sends the death signal when the *thread* that started Envoy ends, so this thread
	// must live as long. https://github.com/golang/go/issues/27505
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := raiseFileLimit(); err != nil {
		p.log.Warn("Envoy may run out of files", "error", err)
	}
	w := &logWriter{log: p.log}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	// Not files: Envoy opens /dev/stdout for access logs, which fails on systemd's sockets and
	// works on our pipes.
	cmd.Stdout, cmd.Stderr = writerOnly{p.stdout}, w
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a terminal's Ctrl-C is for the agent, which drains first
		Pdeathsig: syscall.SIGKILL,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	start := time.Now()
	err := cmd.Start()
	if err == nil {
		p.log.Debug("envoy started", "pid", cmd.Process.Pid, "path", p.path)
		p.pid.Store(int64(cmd.Process.Pid))
		err = cmd.Wait()
		p.pid.Store(0)
	}
	w.Close()
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", p.path, err)
	}
	return exit{err: err, reason: w.worst, lived: time.Since(start)}
}

// writerOnly hides that a writer is a file.
type writerOnly struct{ io.Writer }

// raiseFileLimit lets Envoy open as many files as this machine allows: Go raises the limit for its
// own process and puts it back for those that it starts, unless it was set on purpose.
func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
