package main

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
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// TestMain waits for other runs of these tests, whose addresses are fixed.
func TestMain(m *testing.M) {
	lock, err := testport.Alone("quickstart")
	if err != nil {
		panic(err)
	}
	defer lock.Close() //nolint:errcheck // the end of the process does
	goleak.VerifyTestMain(m)
}

// build makes the programs and returns the command line for a run of its own addresses.
func build(t *testing.T, network, xds, metrics string) []string {
	t.Helper()
	envoy := testenvoy.Path(t)
	programs := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", programs+"/", "../../cmd/...",
		"../echo").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "quick") // short: a socket's address has a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return []string{"--programs", programs, "--echo", filepath.Join(programs, "echo"), "--envoy", envoy, "--example",
		"config", "--dir", filepath.Join(dir, "run"), "--network", network, "--xds-address", xds,
		"--metrics-address", metrics, "--experiments", "experiments"}
}

// The quickstart works with everything real: traffic flows, all experiments come out right, and
// nothing is left.
func TestSmoke(t *testing.T) {
	t.Parallel()
	args := build(t, "127.0.44", "127.0.44.1:15012", "127.0.44.1:15014")
	var out testlog.Text
	o, err := parse(args, &out)
	if err != nil {
		t.Fatal(err)
	}
	m := newMesh(o, &out)
	m.try = m.experiments
	if err := m.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"Traffic flows", `did you mean "subset"?`, "ashored is back",
		"received the caller's identity", "status 403:20", "DENIED", "REVOKED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the output:\n%s", want, out.String())
		}
	}
	leftNothing(t, args)
}

// The end by a signal is no failure, wherever it comes, and leaves nothing; a second run of the
// same folder is refused meanwhile.
func TestEnd(t *testing.T) {
	t.Parallel()
	args := build(t, "127.0.45", "127.0.45.1:15012", "127.0.45.1:15014")
	ctx, stop := context.WithCancel(t.Context())
	var out, errs testlog.Text
	code := make(chan int, 1)
	go func() { code <- execute(ctx, args, &out, &errs) }()
	deadline := time.After(startWithin + 10*time.Second)
	for !strings.Contains(out.String(), "Ctrl-C stops everything") {
		select {
		case c := <-code:
			t.Fatalf("it ended by itself: %d %s", c, errs.String())
		case <-deadline:
			t.Fatalf("nothing to try: %s", out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	var second testlog.Text
	if c := execute(t.Context(), args, &second, &second); c != 1 ||
		!strings.Contains(second.String(), "runs in "+args[9]+" already") {
		t.Errorf("second run: exit code %d, %q", c, second.String())
	}
	// With a folder of its own it would still meet the ports.
	other := append(append([]string(nil), args...), "--dir", args[9]+"2")
	if c := execute(t.Context(), other, &second, &second); c != 1 ||
		!strings.Contains(second.String(), "port of ashored's xDS: listen tcp 127.0.45.1:15012") ||
		!strings.Contains(second.String(), `choose another: make run ARGS="--xds-address 127.0.0.1:16012"`) {
		t.Errorf("ports taken: exit code %d, %q", c, second.String())
	}
	stop()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d: %s", c, errs.String())
	}
	leftNothing(t, args)
}

// A signal while programs start and workloads join ends all of it too.
func TestEndEarly(t *testing.T) {
	t.Parallel()
	args := build(t, "127.0.47", "127.0.47.1:15012", "127.0.47.1:15014")
	for _, reached := range []string{"ashored.yaml", "ashored.pid", "state/admin.sock", "backend-v2-agent.pid",
		"frontend/identity"} {
		ctx, stop := context.WithCancel(t.Context())
		var out, errs testlog.Text
		code := make(chan int, 1)
		go func() { code <- execute(ctx, args, &out, &errs) }()
		deadline := time.Now().Add(startWithin)
		for path := filepath.Join(args[9], reached); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil {
				break
			}
			if len(code) > 0 {
				break
			}
		}
		stop()
		if c := <-code; c != 0 {
			t.Errorf("ended at %s: exit code %d: %s", reached, c, errs.String())
		}
		leftNothing(t, args)
	}
}

// leftNothing checks that no folder, process or port of a run is left.
func leftNothing(t *testing.T, args []string) {
	t.Helper()
	dir, network := args[9], args[11]
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s was left: %v", dir, err)
	}
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(dir+"/")) {
			t.Errorf("process left: %q", line)
		}
	}
	for _, port := range []string{portIngress, portApp, portProxy, portStatus} {
		if conn, err := net.Dial("tcp", network+".2:"+port); err == nil {
			t.Errorf("port %s of the frontend was left open", port)
			conn.Close()
		}
	}
}

// Wrong use ends with 2; what is missing is named, with what to do.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for args, want := range map[string]string{
		"now":               `2 quickstart: unexpected argument "now"`,
		"--network 10.0.0":  "2 quickstart: --network \"10.0.0\" is not",
		"--programs /none":  "1 quickstart: stat /none/ashored: no such file or directory; \"make run\" makes",
		"--xds-address x:y": "1 quickstart: port of ashored's xDS",
	} {
		var out, errs testlog.Text
		line := append([]string{"--dir", filepath.Join(dir, "run"), "--network", "127.0.46", "--xds-address",
			"127.0.46.1:15012", "--metrics-address", "127.0.46.1:15014"}, strings.Fields(args)...)
		code := execute(t.Context(), line, &out, &errs)
		if got := fmt.Sprint(code, " ", errs.String()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// A load that saw a failed request, or none at all, is no success.
func TestLoad(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*load{
		"failed": {stop: func() {}, sum: share{Answers: map[string]int{"v1": 9}, Failures: map[string]int{"status 503": 1}}},
		"none":   {stop: func() {}},
		"error":  {stop: func() {}, err: http.ErrServerClosed, sum: share{Answers: map[string]int{"v1": 9}}},
	} {
		if s, err := l.end(); err == nil {
			t.Errorf("%s: no error for %v", name, s)
		}
	}
	if _, err := (&load{stop: func() {}, sum: share{Answers: map[string]int{"v1": 9}}}).end(); err != nil {
		t.Error(err)
	}
}
