package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

// killAfter is how long a program may take to end.
const killAfter = 15 * time.Second

// program is one that the mesh is made of.
type program struct {
	name string
	path string
	args []string
	// more makes further arguments before the first start; nil: there are none.
	more func(context.Context) ([]string, error)
	log  string // the file that it writes to
	// revive is the delay before the program is restarted after a user killed it.
	revive time.Duration
	// ended is called when a user has killed it.
	ended func(error)

	pid string // file with its process ID
}

// run runs the program until ctx ends. A program that is killed by a signal is restarted; a program
// that gives up is an error.
func (p *program) run(ctx context.Context) error {
	if p.more != nil {
		more, err := p.more(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		p.args = append(p.args, more...)
	}
	for {
		err := p.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !killed(err) {
			return fmt.Errorf("%s ended (%w). The end of its log, %s:\n%s", p.name, err, p.log, tail(p.log))
		}
		p.ended(err)
		if !task.Sleep(ctx, p.revive) {
			return nil
		}
	}
}

// once runs the program one time, in a process group of its own: Ctrl-C reaches us alone, and we
// end it. Nothing outlives us: the kernel kills it when the thread that started it ends.
func (p *program) once(ctx context.Context) error {
	runtime.LockOSThread() // https://github.com/golang/go/issues/27505
	defer runtime.UnlockOSThread()
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return err
	}
	err = os.WriteFile(p.pid, fmt.Appendln(nil, cmd.Process.Pid), 0o644)
	return errors.Join(cmd.Wait(), err, os.Remove(p.pid))
}

// killed says that a program was ended by a signal.
func killed(err error) bool {
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	s, ok := e.Sys().(syscall.WaitStatus)
	return ok && s.Signaled()
}

// tail is the last lines of a file, or what it says from a panic on.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	from := max(0, len(lines)-5)
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "panic: ") }); i >= 0 {
		from = i
	}
	return "  " + strings.Join(lines[from:min(from+10, len(lines))], "\n  ")
}

// workload is one application with its Envoy. It joins the WorkloadGroup that is called as it is.
type workload struct {
	name, app, version string // app is its service account too
	host               string // last number of the address
	proxy              bool   // its application calls others through Envoy
}

// Ports of each workload's address.
const (
	portIngress = "8080"  // Envoy, for others
	portApp     = "9080"  // the application
	portProxy   = "15007" // Envoy as HTTP proxy, for the application
	portStatus  = "15020" // the agent
)

func workloads() []workload {
	return []workload{
		{"frontend", "frontend", "v1", "2", true},
		{"backend-v1", "backend", "v1", "3", false},
		{"backend-v2", "backend", "v2", "4", false},
	}
}

// programs are everything that runs, the control plane first.
func (m *mesh) programs() []*program {
	control := m.program("ashored", m.tool("ashored"), "--config", m.settings())
	control.more = m.initialize
	control.revive = reviveAfter
	out := []*program{control}
	for _, w := range workloads() {
		echo := m.program(w.name, m.o.echo, "--name", w.app, "--version", w.version, "--http", m.at(w, portApp))
		if w.proxy {
			echo.args = append(echo.args, "--proxy", "http://"+m.at(w, portProxy))
		}
		agent := m.program(w.name+"-agent", m.tool("ashore-agent"))
		agent.more = func(ctx context.Context) ([]string, error) { return m.joining(ctx, w) }
		out = append(out, echo, agent)
	}
	return out
}

// initialize creates the store and the root of the control plane, unless a former run did.
func (m *mesh) initialize(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, m.tool("ashored"), "init", "--config", m.settings()).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ashored init: %w: %s", err, out)
	}
	return nil, nil
}

func (m *mesh) program(name, path string, args ...string) *program {
	p := &program{name: name, path: path, args: args, revive: time.Second,
		log: filepath.Join(m.o.dir, "logs", name+".log"), pid: filepath.Join(m.o.dir, name+".pid")}
	p.ended = func(err error) {
		how := "ended"
		if err != nil {
			how = err.Error()
		}
		m.say("  %s ended (%s) and is restarted in %v", name, how, p.revive)
	}
	return p
}

func (m *mesh) address(w workload) string         { return m.o.network + "." + w.host }
func (m *mesh) at(w workload, port string) string { return m.address(w) + ":" + port }
func (m *mesh) config() string                    { return filepath.Join(m.o.dir, "config") }
func (m *mesh) state() string                     { return filepath.Join(m.o.dir, "state") }
func (m *mesh) splitFile() string                 { return filepath.Join(m.config(), "split.yaml") }
func (m *mesh) extras() string                    { return filepath.Join(m.o.dir, "experiments") }
func (m *mesh) tool(name string) string           { return filepath.Join(m.o.programs, name) }
func (m *mesh) settings() string                  { return filepath.Join(m.o.dir, "ashored.yaml") }
func (m *mesh) socket() string                    { return filepath.Join(m.state(), "admin.sock") }
func (m *mesh) home(w workload) string            { return filepath.Join(m.o.dir, w.name) }
