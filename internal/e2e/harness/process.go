package harness

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testchild"
)

// Process is a program that a test started. It ends with the test.
type Process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	log *tail
}

// Start runs a program in the namespace, with group ID gid if that is not zero.
func (ns *Namespace) Start(name string, gid uint32, argv ...string) *Process {
	ns.t.Helper()
	return start(ns.t, name, gid, append(ns.prefix(), argv...)...)
}

// start runs a program in a process group of its own, with group ID gid if that is not zero; what
// it prints is shown when the test fails.
func start(t testing.TB, name string, gid uint32, argv ...string) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), log: &tail{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if gid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(os.Getuid()), Gid: gid}
	}
	wait, err := testchild.Start(p.cmd)
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = wait() // how it ended shows in its log
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("%s printed last:\n%s", name, p.log)
		}
	})
	return p
}

// Kill ends the process at once, as kill -9 does, and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Signal(syscall.SIGKILL) // an error says that it has ended
	<-p.done
}

// Stop asks the process to end, and kills what is left of its group after a while.
func (p *Process) Stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.t.Errorf("%s did not end within 15s of SIGTERM", p.name)
		p.cmd.Process.Signal(syscall.SIGQUIT) // a Go program prints its goroutines
		time.Sleep(time.Second)
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Running says that the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what the process printed last.
func (p *Process) Log() string { return p.log.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// tailSize is the length of the stored end of a log.
const tailSize = 256 << 10

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(b)
	if extra := l.buf.Len() - 2*tailSize; extra > 0 {
		l.buf.Next(extra + tailSize)
	}
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(l.buf.String(), "?")
}
