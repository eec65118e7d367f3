package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// program builds the agent and starts it with a real Envoy, at a control plane that is not there.
func program(t *testing.T, address string) (agent *exec.Cmd, log *bytes.Buffer, bootstrap string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "ashore-agent")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	envoy := os.Getenv("ENVOY")
	if envoy == "" {
		envoy = filepath.Join("..", "..", ".tools", "envoy")
	}
	if _, err := os.Stat(envoy); err != nil {
		t.Fatalf("no Envoy for this test: run \"make tools\", or set ENVOY: %v", err)
	}
	log = &bytes.Buffer{}
	agent = exec.Command(path, "run", "--dev", "--xds", address+":1", "--address", address, "--name", "web", "--state", dir, "--envoy", envoy)
	agent.Stderr = log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if agent.ProcessState == nil {
			agent.Process.Kill()
			agent.Wait()
		}
	})
	bootstrap = filepath.Join(dir, "bootstrap.json")
	eventually(t, "Envoy runs", func() error {
		resp, err := http.Get("http://" + address + ":15000/server_info")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	http.DefaultClient.CloseIdleConnections()
	return agent, log, bootstrap
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so within %v: %s: %v", patience, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// running is an error when no process has the bootstrap among its arguments, gone when one has.
func running(bootstrap string) error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range found {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(bootstrap)) {
			return nil
		}
	}
	return errors.New("no Envoy runs")
}

func gone(bootstrap string) error {
	if running(bootstrap) == nil {
		return errors.New("Envoy still runs")
	}
	return nil
}

// A signal ends both in order, with exit code 0; a kill of the agent leaves no Envoy behind either.
func TestSignals(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct {
		signal syscall.Signal
		code   int // -1: by the signal
	}{{syscall.SIGTERM, 0}, {syscall.SIGINT, 0}, {syscall.SIGKILL, -1}} {
		t.Run(strconv.Itoa(int(tc.signal)), func(t *testing.T) {
			t.Parallel()
			agent, log, bootstrap := program(t, fmt.Sprintf("127.0.42.%d", 2+i))
			if err := running(bootstrap); err != nil {
				t.Fatal(err)
			}
			if err := agent.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := agent.Wait(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := agent.ProcessState.ExitCode(); got != tc.code {
				t.Errorf("exit code %d, want %d; log:\n%s", got, tc.code, log)
			}
			eventually(t, "Envoy ends with its agent", func() error { return gone(bootstrap) })
		})
	}
}
