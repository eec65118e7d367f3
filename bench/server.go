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

// server is a process that is measured.
type server struct {
	name string
	addr string
	// socket is ashored's admin socket; authority the folder of the authority, where the fleet is
	// to have its certificates.
	socket, authority string

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
	if over := len(t.b) - 4096; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// launch starts a process; standard output goes to out.
func launch(name, addr, bin string, out io.Writer, args ...string) (*server, error) {
	s := &server{name: name, addr: addr, log: &tail{}, done: make(chan struct{}), cmd: exec.Command(bin, args...)}
	s.cmd.Stdout, s.cmd.Stderr = io.MultiWriter(out, s.log), s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives the bench
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // how it ended shows in its log
	}()
	return s, nil
}

// stop ends the process: by request, then by force.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", s.name, err)
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(stopTime):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM", s.name, stopTime), s.cmd.Process.Kill())
	}
}

// ended is the error of a server that ended by itself.
func (s *server) ended() error {
	return fmt.Errorf("%s ended by itself:\n%s", s.name, s.log)
}

// freeAddr is a loopback address with a port that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// ashored is how it is started.
type ashored struct {
	bin, files string
	work       string // a folder for its state
	// secure serves TLS alone, with the authority in the folder of that name or, when it is empty,
	// one of ashored's own.
	secure    bool
	authority string
}

// arguments make it serve at those addresses.
func (a ashored) arguments(xds, metrics, state, socket string) ([]string, error) {
	if !a.secure {
		return []string{"--dev", "--files", a.files, "--state", state, "--xds-address", xds, "--metrics-address",
			metrics, "--admin-socket", socket}, nil
	}
	settings := fmt.Sprintf("sources: [{kind: files, folder: %s}]\nstate: %s\nxds: {address: %q}\nmetrics: {address: %q}\nadmin: {socket: %s}\nca: {plugged: %q}\n", a.files, state, xds, metrics, socket, a.authority)
	path := state + ".yaml"
	return []string{"--config", path}, os.WriteFile(path, []byte(settings), 0o600)
}

// startAshored starts it and waits until it is ready.
func startAshored(ctx context.Context, a ashored) (*server, error) {
	xds, err1 := freeAddr()
	metrics, err2 := freeAddr()
	state, err3 := os.MkdirTemp(a.work, "state")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	socket := filepath.Join(state, "admin.sock")
	args, err := a.arguments(xds, metrics, state, socket)
	if err != nil {
		return nil, err
	}
	if a.secure {
		if out, err := exec.CommandContext(ctx, a.bin, append([]string{"init"}, args...)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ashored init: %w: %s", err, out)
		}
	}
	s, err := launch("ashored", xds, a.bin, io.Discard, args...)
	if err != nil {
		return nil, err
	}
	s.socket, s.authority = socket, a.authority
	if err := s.ready(ctx, "http://"+metrics+"/ready"); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// ready waits until url answers with 200.
func (s *server) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-s.done:
			return s.ended()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w\n%s", s.name, startTime, ctx.Err(), s.log)
		case <-time.After(100 * time.Millisecond):
		}
	}
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

// startFloor starts a floor that records from, and waits until it serves.
func startFloor(self, files string, shape fleet.Shape, from *server) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	args := append([]string{"floor", "-dir", files, "-record", from.addr, "-listen", addr, "-authority",
		from.authority}, shapeArgs(shape)...)
	s, err := launch("floor", addr, self, w, args...)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	s.authority = from.authority
	go func() { <-s.done; _ = w.Close() }() // ends the reader below
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.HasPrefix(line, "serving on ") {
		return nil, errors.Join(s.ended(), s.stop())
	}
	return s, nil
}

func shapeArgs(s fleet.Shape) []string {
	return []string{"-services", strconv.Itoa(s.Services), "-endpoints", strconv.Itoa(s.Endpoints), "-namespaces",
		strconv.Itoa(s.Namespaces),
		"-scoped=" + strconv.FormatBool(s.Scoped), "-policies", strconv.Itoa(s.Policies)}
}

// load runs the fleet against s in a process of its own, so that its garbage is not the next one's.
func load(ctx context.Context, self, files string, c setup, s *server) (fleet.Result, error) {
	args := append([]string{"run", "-dir", files, "-addr", s.addr, "-pid", strconv.Itoa(s.cmd.Process.Pid), "-proxies",
		strconv.Itoa(c.Proxies),
		"-delta=" + strconv.FormatBool(c.Delta), "-authority", s.authority}, shapeArgs(c.Shape)...)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return fleet.Result{}, fmt.Errorf("measure %s: %w\n%s", s.name, err, s.log)
	}
	var result fleet.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return fleet.Result{}, fmt.Errorf("measure %s: %w", s.name, err)
	}
	return result, nil
}
