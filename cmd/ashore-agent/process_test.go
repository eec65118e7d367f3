package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// testTimeout bounds every wait of these tests.
const testTimeout = 30 * time.Second

// running is an agent that a test started.
type running struct {
	cmd       *exec.Cmd
	wait      func() error
	log       bytes.Buffer // may be read when wait has returned
	bootstrap string       // the file that its Envoy has among its arguments
}

// startProgram builds the agent and starts it with a real Envoy, at a control plane that is not there.
func startProgram(t *testing.T, address string, flags ...string) *running {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "ashore-agent")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	envoy := testenvoy.Path(t)
	p := &running{bootstrap: filepath.Join(dir, "bootstrap.json")}
	args := []string{"run", "--dev", "--xds", address + ":1", "--address", address, "--name", "web", "--state", dir,
		"--envoy", envoy}
	p.cmd = exec.Command(path, append(args, flags...)...)
	p.cmd.Stderr = &p.log
	wait, err := testchild.Start(p.cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.wait = wait
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error says that it has ended
		_ = p.wait()             // how it ended is for the test to say
	})
	eventually(t, "Envoy runs", func() error {
		conn, err := net.Dial("unix", filepath.Join(dir, "admin.sock"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return p
}

// signal sends one.
func (p *running) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wantEnd waits for the agent's end with that code, -1 for that by a signal, and for Envoy's.
func (p *running) wantEnd(t *testing.T, code int) {
	t.Helper()
	var exit *exec.ExitError
	if err := p.wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d; log:\n%s", got, code, p.log.String())
	}
	eventually(t, "Envoy ends with its agent", func() error {
		if p.envoyRuns() == nil {
			return errors.New("Envoy still runs")
		}
		return nil
	})
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so within %v: %s: %v", testTimeout, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// envoyRuns is an error when no process has the bootstrap among its arguments.
func (p *running) envoyRuns() error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range found {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(p.bootstrap)) {
			return nil
		}
	}
	return errors.New("no Envoy runs")
}

// A signal ends both in order, with exit code 0, and a hangup does not; a kill of the agent leaves
// no Envoy behind either.
func TestSignals(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct {
		signals []syscall.Signal
		code    int // -1: by the signal
	}{{[]syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, 0}, {[]syscall.Signal{syscall.SIGINT},
		0}, {[]syscall.Signal{syscall.SIGKILL}, -1}} {
		t.Run(fmt.Sprint(tc.signals), func(t *testing.T) {
			t.Parallel()
			p := startProgram(t, fmt.Sprintf("127.0.42.%d", 2+i))
			if err := p.envoyRuns(); err != nil {
				t.Fatal(err)
			}
			for _, s := range tc.signals {
				p.signal(t, s)
			}
			p.wantEnd(t, tc.code)
		})
	}
}
