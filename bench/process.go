package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

const (
	// startTime is how long a server may take to be ready, stopTime to end when asked to.
	startTime = 2 * time.Minute
	stopTime  = 10 * time.Second
)

// process is a program that is measured.
type process struct {
	name   string
	mesh   mesh   // that it serves
	addr   string // of xDS
	socket string // ashored's admin socket

	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when the process has ended
}

// tail keeps the end of what a process says, to show when it fails. Safe for concurrent use.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// launch starts a process; standard output goes to out.
func launch(name, bin string, out io.Writer, args ...string) (*process, error) {
	p := &process{name: name, log: &tail{}, done: make(chan struct{}), cmd: exec.Command(bin, args...)}
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(out, p.log), p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives the bench
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended shows in its log
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process: by request, then by force.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTime):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM", p.name, stopTime), p.cmd.Process.Kill())
	}
}

// ended is the error of a process that exited before it was stopped.
func (p *process) ended() error { return fmt.Errorf("%s exited:\n%s", p.name, p.log) }

// ready waits until url answers with 200, and ends the process when it does not in time.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for !answers(ctx, url) {
		select {
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready after %s: %w\n%s", p.name, startTime, ctx.Err(), p.log),
				p.stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// freeAddr is a loopback address with a port that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startAshored starts ashored and waits until it is ready. With TLS it serves nothing else, and has
// the mesh's authority, or else one of its own.
func startAshored(ctx context.Context, bin, work string, m mesh, tls bool) (*process, error) {
	xds, err1 := freeAddr()
	metrics, err2 := freeAddr()
	state, err3 := os.MkdirTemp(work, "state")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	socket := filepath.Join(state, "admin.sock")
	args := []string{"--dev", "--files", m.dir, "--set", "state=" + state, "--set", "xds.plaintextAddress=" + xds,
		"--set", "metrics.address=" + metrics, "--set", "admin.socket=" + socket}
	if tls {
		settings := fmt.Sprintf("sources: [{kind: files, folder: %s}]\nstate: %s\nxds: {address: %q}\n"+
			"metrics: {address: %q}\nadmin: {socket: %s}\nca: {plugged: %q}\n",
			m.dir, state, xds, metrics, socket, m.authority)
		args = []string{"--config", state + ".yaml"}
		if err := os.WriteFile(args[1], []byte(settings), 0o600); err != nil {
			return nil, err
		}
		if out, err := exec.CommandContext(ctx, bin, "init", args[0], args[1]).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ashored init: %w: %s", err, out)
		}
	}
	p, err := launch("ashored", bin, io.Discard, args...)
	if err != nil {
		return nil, err
	}
	p.mesh, p.addr, p.socket = m, xds, socket
	return p, p.ready(ctx, "http://"+metrics+"/ready")
}

// startFloor starts a floor that records from a server, and waits until it serves.
func startFloor(self string, from *process) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := launch("floor", self, w, append([]string{"floor", "-record", from.addr, "-listen", "127.0.0.1:0"},
		from.mesh.args()...)...)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	p.mesh = from.mesh
	go func() { <-p.done; _ = w.Close() }() // ends the reader below
	line, err := bufio.NewReader(r).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), servingOn+" ")
	if err != nil || !ok {
		return nil, errors.Join(p.ended(), p.stop())
	}
	p.addr = addr
	return p, nil
}

// load runs the fleet against p in a process of its own, so that its garbage is not the next one's.
func load(ctx context.Context, self string, c setup, p *process) (fleet.Result, error) {
	args := []string{"run", "-addr", p.addr, "-pid", strconv.Itoa(p.pid()), fmt.Sprint("-proxies=", c.Proxies),
		fmt.Sprint("-delta=", c.Delta)}
	cmd := exec.CommandContext(ctx, self, append(args, p.mesh.args()...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return fleet.Result{}, fmt.Errorf("measure %s: %w\n%s", p.name, err, p.log)
	}
	var result fleet.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return fleet.Result{}, fmt.Errorf("measure %s: %w", p.name, err)
	}
	return result, nil
}
