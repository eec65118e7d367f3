package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// KillAfter is how long Envoy may take to exit after SIGTERM.
const KillAfter = 5 * time.Second

// Child runs Envoy as a child process, and restarts it when it exits unexpectedly.
type Child struct {
	restarter
	path   string
	args   []string
	env    []string
	stdout io.Writer // access logs
	stderr io.Writer // Envoy's log
}

// NewChild returns a Child that starts the program path with a bootstrap file. stdout receives
// access logs, stderr Envoy's log, and log the messages of this package.
func NewChild(path, bootstrap string, o Options, stdout, stderr io.Writer, log hclog.Logger) *Child {
	args := append(o.arguments(), "--config-path", bootstrap, "--disable-hot-restart")
	resource := o.resource()
	if more := os.Getenv(resourceVariable); more != "" {
		resource += "," + more
	}
	env := slices.Concat(os.Environ(), o.Variables, []string{resourceVariable + "=" + resource})
	return &Child{restarter{log: log}, path, args, env, stdout, stderr}
}

// Run implements Runner. After last has ended, Envoy is not restarted.
func (c *Child) Run(ctx, last context.Context) error {
	c.repeat(ctx, last, c.run)
	return nil
}

// Resume implements Runner: a child ends with the agent that started it.
func (*Child) Resume(context.Context) (bool, error) { return false, nil }

// Stays implements Runner.
func (*Child) Stays(context.Context) bool { return false }

// Stop implements Runner: a child ends when Run does.
func (*Child) Stop(context.Context) error { return nil }

// run starts Envoy, waits until it exits and returns why. When ctx ends, Envoy gets SIGTERM, and
// SIGKILL after KillAfter. Envoy does not outlive this process, even if this process is killed.
func (c *Child) run(ctx context.Context) error {
	// The kernel sends Pdeathsig when the *thread* that started Envoy exits, so this thread must
	// live as long as Envoy. https://github.com/golang/go/issues/27505
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := raiseFileLimit(); err != nil {
		c.log.Warn("Envoy may run out of files", "error", err)
	}
	last := &lastLine{}
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Env = c.env
	// Envoy opens /dev/stdout for access logs. That fails if stdout is a socket of systemd, so pass
	// writers that are not files: exec then uses pipes.
	cmd.Stdout, cmd.Stderr = writerOnly{c.stdout}, io.MultiWriter(c.stderr, last)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // Ctrl-C in a terminal only reaches the agent, which drains Envoy first
		Pdeathsig: syscall.SIGKILL,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = KillAfter
	err := cmd.Start()
	if err == nil {
		c.change(func(s *State) { s.PID = cmd.Process.Pid; s.Runs++ })
		err = cmd.Wait()
		c.change(func(s *State) { s.PID = 0 })
	}
	if err == nil {
		err = errors.New("it exited")
	}
	return fmt.Errorf("%s: %w: %s", c.path, err, last.text())
}

// lastLine keeps the end of Envoy's log. The last line is probably the reason why it exited.
type lastLine struct{ end []byte }

// Write never fails.
func (l *lastLine) Write(b []byte) (int, error) {
	l.end = append(l.end, b...)
	l.end = l.end[max(0, len(l.end)-1<<10):]
	return len(b), nil
}

func (l *lastLine) text() string {
	text := strings.TrimSpace(string(l.end))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// writerOnly hides that a writer is an *os.File, so that exec makes a pipe.
type writerOnly struct{ io.Writer }

// raiseFileLimit lets Envoy open as many files as the machine allows. Go resets the limit for child
// processes unless the program has set it.
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
