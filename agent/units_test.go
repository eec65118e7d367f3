package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// launcher takes the place of systemd: it starts the programs of units from their environment
// files, and again when they fail. Which ones run is in files, so that an agent in another process
// finds them.
type launcher struct {
	folder, program string
	stopping        bool
	broken          string // a unit that does not start

	mu      sync.Mutex
	stopped map[string]bool // guarded by mu: the unit is not to run
	wg      sync.WaitGroup
}

// newLauncher starts units whose files are in a folder; all have ended with the test.
func newLauncher(t *testing.T, folder string) *launcher {
	t.Helper()
	l := &launcher{folder: folder, program: testenvoy.Path(t), stopped: map[string]bool{}}
	t.Cleanup(func() {
		names, err := l.List(context.Background(), "*")
		if err != nil {
			t.Error(err)
		}
		for _, n := range names {
			if err := l.Stop(context.Background(), n); err != nil {
				t.Error(err)
			}
		}
		l.wg.Wait()
	})
	return l
}

func (l *launcher) pidFile(name string) string { return filepath.Join(l.folder, name+".pid") }

func (l *launcher) List(_ context.Context, pattern string) ([]string, error) {
	found, err := filepath.Glob(l.pidFile(pattern))
	for i, path := range found {
		found[i] = strings.TrimSuffix(filepath.Base(path), ".pid")
	}
	return found, err
}

func (l *launcher) Look(_ context.Context, name string) (envoy.UnitState, error) {
	text, err := os.ReadFile(l.pidFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return envoy.UnitState{Active: "inactive", Result: "success"}, nil
	}
	pid, _ := strconv.Atoi(string(text)) // empty while it is started again
	return envoy.UnitState{PID: pid, Active: "active"}, err
}

func (l *launcher) Start(_ context.Context, name string) error {
	if name == l.broken {
		return errors.New("it does not start")
	}
	_, instance, _ := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
	text, err := os.ReadFile(filepath.Join(l.folder, "envoy-"+instance+".args"))
	if err != nil {
		return err
	}
	args, _, _ := strings.Cut(string(text), "\n")
	l.mu.Lock()
	l.stopped[name] = false
	l.mu.Unlock()
	begun := make(chan error, 1)
	l.wg.Go(func() {
		for {
			cmd := exec.Command(l.program, strings.Fields(args)...)
			cmd.Stderr = os.Stderr
			wait, err := testchild.Start(cmd)
			if err == nil {
				err = os.WriteFile(l.pidFile(name), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
			}
			select {
			case begun <- err:
			default:
			}
			if err != nil {
				return
			}
			failed := wait()
			l.mu.Lock()
			end := failed == nil || l.stopped[name]
			l.mu.Unlock()
			if end {
				_ = os.Remove(l.pidFile(name)) // its folder may have gone with the test
				return
			}
			_ = os.WriteFile(l.pidFile(name), nil, 0o600) // the same
		}
	})
	return <-begun
}

func (l *launcher) Kill(ctx context.Context, name string) error {
	return l.signal(ctx, name, syscall.SIGKILL)
}

func (l *launcher) Stop(ctx context.Context, name string) error {
	l.mu.Lock()
	l.stopped[name] = true
	l.mu.Unlock()
	if err := l.signal(ctx, name, syscall.SIGTERM); err != nil {
		return err
	}
	for {
		if s, err := l.Look(ctx, name); err != nil || s.Active == "inactive" {
			return err
		}
		if !task.Sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (l *launcher) signal(ctx context.Context, name string, sig syscall.Signal) error {
	s, err := l.Look(ctx, name)
	if err != nil || s.PID == 0 {
		return err
	}
	if err := syscall.Kill(s.PID, sig); !errors.Is(err, syscall.ESRCH) { // its successor may have ended it
		return err
	}
	return nil
}

func (l *launcher) Stopping(context.Context) (bool, error) { return l.stopping, nil }

// host is the machine of a workload whose Envoy is a unit: settings, and systemd.
type host struct {
	t        *testing.T
	settings Settings
	systemd  *launcher
}

// newHost joins a workload whose Envoy passes port 9000 of an address on to an echo service.
func newHost(t *testing.T, address string) *host {
	t.Helper()
	clusters, listeners := tcpForward(t, address+":9000", echoService(t))
	_, register := resources(t, clusters, listeners)
	c := joining(t, startPlane(t, newMesh(t, "cluster.local"), "127.0.0.1:0", register))
	c.Settings.Workload.Addresses = []string{address}
	joined, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := ownSettings(t, joined.Settings.State, func(s *Settings) {
		s.UseUnits("web")
		s.Envoy.program, s.Envoy.folder = testenvoy.Path(t), stateFolder(t)
		s.Envoy.ParentShutdown = time.Second
	})
	return &host{t, s, newLauncher(t, s.Envoy.folder)}
}

// start runs an agent and waits until it says that it is started.
func (m *host) start() *running {
	m.t.Helper()
	begun := make(chan struct{}, 1)
	a, err := New(Config{Settings: m.settings, Log: testlog.New(m.t), manager: m.systemd, Notify: func(state string) {
		if state == sdnotify.Ready {
			begun <- struct{}{}
		}
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: m.t, s: m.settings, agent: a, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	m.t.Cleanup(func() {
		if err := r.end(); err != nil {
			m.t.Error(err)
		}
	})
	select {
	case <-begun:
	case err := <-r.done:
		m.t.Fatalf("the agent ended: %v", err)
	case <-time.After(testTimeout):
		m.t.Fatal("the agent does not start")
	}
	return r
}

func (m *host) units() string {
	m.t.Helper()
	names, err := m.systemd.List(m.t.Context(), "*")
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// load calls the workload again and again, on a new connection each time, until it is ended.
type load struct {
	stop         chan struct{}
	done         sync.WaitGroup
	good, failed atomic.Int64
	why          atomic.Value
}

func startLoad(t *testing.T, at string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for range 4 {
		l.done.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := call(at); err != nil {
					l.failed.Add(1)
					l.why.Store(err.Error())
				} else {
					l.good.Add(1)
				}
			}
		})
	}
	return l
}

func call(at string) (err error) {
	conn, err := net.DialTimeout("tcp", at, testTimeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	buf := make([]byte, 5)
	n, err := conn.Read(buf)
	if err == nil && string(buf[:n]) != "hello" {
		err = fmt.Errorf("got %q", buf[:n])
	}
	return err
}

// end wants that no call failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	if l.failed.Load() > 0 || l.good.Load() == 0 {
		t.Errorf("%d of %d calls failed: %v", l.failed.Load(), l.failed.Load()+l.good.Load(), l.why.Load())
	}
	t.Logf("%d calls", l.good.Load())
}

// An Envoy of a unit outlives its agents: the next one uses it if nothing changed, and starts the
// next epoch otherwise. No call fails. /quitquitquit ends it.
func TestHotRestart(t *testing.T) {
	t.Parallel()
	const address = "127.0.42.1"
	m := newHost(t, address)
	r := m.start()
	calls := startLoad(t, address+":9000")
	first := r.agent.envoy.State().PID
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	if now := r.agent.envoy.State(); now.PID != first || m.units() != "ashore-envoy@web-0.service" {
		t.Errorf("after a restart of the agent: units %s, process %d, want %d", m.units(), now.PID, first)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	m.settings.Envoy.DrainTime = 44 * time.Second
	r = m.start()
	eventually(t, "the next epoch", func() error {
		if s := r.agent.envoy.State(); s.Unit != "ashore-envoy@web-1.service" || s.PID == first || s.PID == 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	r.ready(healthPort)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	m.settings.Envoy.DrainTime = 43 * time.Second
	r = m.start()
	eventually(t, "the third epoch, once the first has ended", func() error {
		if s := r.agent.envoy.State(); s.Unit != "ashore-envoy@web-2.service" || s.Waiting != "" ||
			strings.Contains(m.units(), "web-0") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	calls.end(t)
	resp, err := http.Post("http://"+r.s.at(statusPort)+"/quitquitquit", "", nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("quit: %v, %v", resp, err)
	}
	if err := errors.Join(resp.Body.Close(), r.fails()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(m.settings.Envoy.folder, "envoy-*")); err != nil || m.units() != "" ||
		len(left) > 0 {
		t.Errorf("after /quitquitquit: units %q, files %v, %v", m.units(), left, err)
	}
}

// A unit that crashed is started again by systemd, and the agent takes note. At the machine's
// shutdown the agent drains it.
func TestUnitCrash(t *testing.T) {
	t.Parallel()
	const address = "127.0.42.2"
	m := newHost(t, address)
	r := m.start()
	before := r.agent.envoy.State()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another process", func() error {
		if s := r.agent.envoy.State(); s.PID == 0 || s.PID == before.PID || s.Runs != before.Runs+1 {
			return fmt.Errorf("%+v", s)
		}
		return call(address + ":9000")
	})
	r.ready(statusPort)
	m.systemd.stopping = true
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if err := r.agent.health.ready(); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("at the machine's shutdown: %v, want that envoy drains", err)
	}
}

// When the next Envoy does not start, the previous one continues, and the status says so.
func TestTakeoverFails(t *testing.T) {
	t.Parallel()
	const address = "127.0.42.3"
	m := newHost(t, address)
	r := m.start()
	calls := startLoad(t, address+":9000")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	m.settings.Envoy.DrainTime = 44 * time.Second
	m.systemd.broken = "ashore-envoy@web-1.service"
	r = m.start()
	eventually(t, "the status", func() error {
		var text bytes.Buffer
		if err := r.agent.Report(t.Context()).Write(&text); err != nil {
			return err
		}
		if want := "runs with its previous program or settings: start ashore-envoy@web-1.service: it does not " +
			"start"; !strings.Contains(text.String(), want) {
			return fmt.Errorf("want %q in\n%s", want, &text)
		}
		return nil
	})
	r.ready(healthPort)
	calls.end(t)
	if m.units() != "ashore-envoy@web-0.service" {
		t.Errorf("units %s", m.units())
	}
}

// agentOf names the file with the settings of an agent that runs in a process of its own.
const agentOf = "ASHORE_TEST_AGENT"

// envoyOf names the program of its Envoy.
const envoyOf = "ASHORE_TEST_ENVOY"

// runAgentProcess is the process of TestAgentKilled.
func runAgentProcess(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s := Default()
	if err := yaml.Unmarshal(text, &s); err != nil {
		return err
	}
	s.UseUnits("web")
	s.Envoy.folder, s.Envoy.program = filepath.Dir(file), os.Getenv(envoyOf)
	if err := s.Complete(); err != nil {
		return err
	}
	a, err := New(Config{Settings: s, Log: hclog.Default(), manager: &launcher{folder: s.Envoy.folder}})
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}

// An agent that is killed leaves its sockets behind; no call fails, and the next agent finds Envoy.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	const address = "127.0.42.4"
	m := newHost(t, address)
	r := m.start()
	pid := r.agent.envoy.State().PID
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(m.settings)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.settings.Envoy.folder, "settings.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	calls := startLoad(t, address+":9000")
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), agentOf+"="+file, envoyOf+"="+testenvoy.Path(t)), os.Stderr
	wait, err := testchild.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	r.ready(statusPort)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if wait() == nil {
		t.Error("the agent ended by itself")
	}
	r = m.start()
	r.ready(healthPort)
	calls.end(t)
	if s := r.agent.envoy.State(); s.PID != pid {
		t.Errorf("envoy is process %d, want %d", s.PID, pid)
	}
}
