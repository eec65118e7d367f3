package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// line is what joins a workload.
type line struct{ plane, hash, token, file string }

func (l line) args() []string {
	return []string{"join", "--control-plane", l.plane, "--ca-hash", l.hash, "--group", "shop/web", "--token-file",
		l.file}
}

// tokenFile is a file with a token.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// authority is a control plane that gives certificates, and nothing else, until the test ends; next
// makes a line.
func authority(t *testing.T, address string) (next func() line) {
	t.Helper()
	ctx := context.Background()
	records := record.NewMemory()
	m, err := ca.NewManager(ctx, ca.ManagerConfig{Dir: t.TempDir(), TrustDomain: "cluster.local", Records: records})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := ca.NewLedger(ctx, ca.LedgerConfig{Records: records, TrustDomain: "cluster.local",
		Groups: func(context.Context, string) (string, string, error) { return "shop", "web", nil }})
	if err != nil {
		t.Fatal(err)
	}
	s := ca.NewServer(ca.ServerConfig{Signer: m.Signer, Bundle: m.Bundle, Ledger: ledger})
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequestClientCert, GetCertificate: m.ServerCertificate})))
	s.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	sum := sha256.Sum256(m.Bundle().Roots[0].Raw)
	return func() line {
		token, _, err := ledger.CreateToken(ctx, ca.TokenRequest{Group: "shop/web"})
		if err != nil {
			t.Fatal(err)
		}
		return line{l.Addr().String(), "sha256:" + hex.EncodeToString(sum[:]), token, tokenFile(t, token)}
	}
}

// One pasted line makes a workload a member and runs its Envoy; pasted again it names the running
// process. The token is in no file and in no log. status shows the state, and leave removes
// everything.
func TestJoinRunLeave(t *testing.T) {
	t.Parallel()
	const address = "127.0.15.50"
	l := authority(t, "127.0.15.51")()
	dir, err := os.MkdirTemp("", "join")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	state := filepath.Join(dir, "state")
	path := filepath.Join(dir, "ashore-agent")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	envoy := testenvoy.Path(t)
	args := append(l.args(), "--name", "web-1", "--address", address, "--state", state, "--envoy", envoy, "--set",
		"drain.maximum=1s", "--set", "log.level=trace")
	p := &running{bootstrap: filepath.Join(state, "bootstrap.json")}
	p.cmd = exec.Command(path, args...)
	var out bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &out, &p.log
	if p.wait, err = testchild.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error says that it has ended
		_ = p.wait()             // how it ended is for the test to say
	})
	eventually(t, "Envoy runs", p.envoyRuns)

	code, stdout, stderr := start(t, args...)
	if want := fmt.Sprintf("running, pid %d\n", p.cmd.Process.Pid); code != 0 ||
		!strings.Contains(stdout, "has joined before (the token was not used)") || !strings.Contains(stdout, want) {
		t.Errorf("pasted again: exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
	wantStatus(t, state, p.cmd.Process.Pid)
	if code, _, stderr := start(t, "leave", "--state", state); code != 1 ||
		!strings.Contains(stderr, "nothing was done; --yes goes on without asking") {
		t.Errorf("leave without an answer: exit code %d, %q", code, stderr)
	}
	if code, stdout, stderr := start(t, "leave", "--yes", "--state", state); code != 0 ||
		!strings.Contains(stdout, "spiffe://cluster.local/ns/shop/sa/web ("+state+") has left the mesh") {
		t.Errorf("leave: exit code %d, %q, %q", code, stdout, stderr)
	}
	p.wantEnd(t, 0)
	if !strings.Contains(out.String(), "spiffe://cluster.local/ns/shop/sa/web: joined\n") {
		t.Errorf("it said %q", out.String())
	}
	if secret := l.token[strings.LastIndexByte(l.token, '.')+1:]; strings.Contains(p.log.String()+out.String(),
		secret) {
		t.Error("the token is in the log")
	}
	if code, _, stderr := start(t, "run", "--state", state, "--envoy", envoy, "--xds", "127.0.15.51:1", "--address",
		address); code != 1 || !strings.Contains(stderr, "this workload has not joined the mesh: on the control plane run") {
		t.Errorf("run after leave: exit code %d, %q", code, stderr)
	}
}

// wantStatus wants an agent that runs and waits for its control plane's configuration.
func wantStatus(t *testing.T, state string, pid int) {
	t.Helper()
	code, stdout, stderr := start(t, "status", "--state", state)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 1 || stderr != "" || !strings.Contains(lines[0],
		"ok    spiffe://cluster.local/ns/shop/sa/web, joined ") {
		t.Errorf("status: exit code %d, %q:\n%s", code, stderr, stdout)
	}
	var doc struct {
		Well     bool   `json:"well"`
		PID      int    `json:"pid"`
		Identity string `json:"identity"`
	}
	code, stdout, _ = start(t, "status", "-o", "json", "--state", state)
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 1 || doc.Well || doc.PID != pid ||
		doc.Identity != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("status: exit code %d, %+v, %v", code, doc, err)
	}
}

// A joined workload runs without any other word: its settings are where it joined. The token may
// come from a file or from standard input.
func TestJoinOnly(t *testing.T) {
	t.Parallel()
	next := authority(t, "127.0.15.52")
	for _, from := range []string{"file", "stdin"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			l, state := next(), filepath.Join(t.TempDir(), "s")
			args := append(l.args()[:7:7], "--name", "web-"+from, "--state", state, "--no-run", "--labels",
				"version=v2")
			var stdin bytes.Buffer
			if from == "stdin" {
				stdin.WriteString(l.token + "\n")
			} else {
				args = append(args, "--token-file", l.file)
			}
			var out, errs bytes.Buffer
			if code := (&program{func(hclog.Logger) {}, &stdin, &out, &errs, nil}).run(context.Background(), args); code != 0 {
				t.Fatalf("exit code %d, %q", code, errs.String())
			}
			w := settingsOf(t, "--state", state).Workload
			if w.Name != "web-"+from || w.Namespace != "shop" || w.Group != "web" || w.Labels["version"] != "v2" ||
				!strings.HasPrefix(w.Addresses[0], "127.0.") {
				t.Errorf("settings to run with: %+v", w)
			}
			code, stdout, _ := start(t, "status", "--state", state)
			if code != 1 || !strings.Contains(stdout, "the agent does not run") ||
				!strings.Contains(stdout, "start the agent: ashore-agent run --state "+state) {
				t.Errorf("status: exit code %d\n%s", code, stdout)
			}
			if code, _, stderr := start(t, "run", "--state", state, "--name", "else", "--envoy",
				testenvoy.Path(t)); code != 2 ||
				!strings.Contains(stderr, ` joined by, "web-`+from+`"`) {
				t.Errorf("run by another name: exit code %d, %q", code, stderr)
			}
			if code, _, stderr := start(t, "leave", "--yes", "--state", state); code != 0 {
				t.Errorf("leave: exit code %d, %q", code, stderr)
			}
			if _, err := os.Stat(filepath.Join(state, "agent.yaml")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("settings are left: %v", err)
			}
		})
	}
}

// What would prevent the agent from running is reported before the token is used; the same line
// works once it is mended. Pasting again changes nothing.
func TestJoinLooksFirst(t *testing.T) {
	t.Parallel()
	l, state := authority(t, "127.0.15.54")(), filepath.Join(t.TempDir(), "s")
	line := append(l.args(), "--name", "web-1", "--state", state)
	none := filepath.Join(t.TempDir(), "envoy")
	if code, _, stderr := start(t, append(line, "--address", "10.99.99.99", "--no-run")...); code != 2 ||
		!strings.Contains(stderr, "workload.addresses: 10.99.99.99 is not an address of this machine") {
		t.Errorf("an address of another machine: exit code %d, %q", code, stderr)
	}
	if code, _, stderr := start(t, append(line, "--address", "127.0.15.54", "--envoy", none)...); code != 2 ||
		!strings.Contains(stderr, "envoy.path: envoy is missing: there is no "+none) {
		t.Errorf("without Envoy: exit code %d, %q", code, stderr)
	}
	taken, err := net.Listen("tcp", "127.0.15.54:15053")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := start(t, append(line, "--address", "127.0.15.54", "--envoy", none)...); code != 2 ||
		!strings.Contains(stderr, "127.0.15.54:15053 is in use by ashore-agent.te") {
		t.Errorf("a DNS port in use: exit code %d, %q", code, stderr)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	// Another key would be refused, had one of them used the token.
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := start(t, append(line, "--address", "127.0.15.54", "--envoy", none, "--no-run")...)
	if code != 0 || !strings.Contains(stdout, ": joined\n") {
		t.Errorf("for a service manager, without Envoy: exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := start(t, append(line, "--address", "10.99.99.99", "--no-run")...); code != 2 ||
		!strings.Contains(stderr, "10.99.99.99 is not an address of this machine") {
		t.Errorf("pasted again, an address of another machine: exit code %d, %q", code, stderr)
	}
	own := filepath.Join(state, "agent.yaml")
	code, stdout, stderr = start(t, append(line, "--address", "127.0.15.55", "--no-run")...)
	text, err := os.ReadFile(own)
	if code != 0 || !strings.Contains(stdout, "has joined before") || err != nil ||
		!strings.Contains(string(text), "- 127.0.15.54\n") || !strings.Contains(string(text), "path: "+none) {
		t.Errorf("pasted again with another address: exit code %d, %q, %q; settings, %v:\n%s", code, stdout, stderr,
			err, text)
	}
}

// Wrong lines name the flag and what is wanted.
func TestJoinErrors(t *testing.T) {
	t.Parallel()
	state, token, account := t.TempDir(), tokenFile(t, "ashore-join.a.b"), tokenFile(t, "a.b.c")
	hash := "sha256:" + strings.Repeat("ab", 32)
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"join", 2, "--group: not set; give the WorkloadGroup"},
		{"join", 2, "--token-file: the token is empty; paste the whole command"},
		{"join", 2, "--ca-hash: \"\" is not the hash"},
		{"join --group shop/web --ca-hash " + hash + " --token-file " + token, 2, "--control-plane: not set; give host:port"},
		{"join --group shop/web --ca-hash " + hash + " --token-file " + token + " --control-plane a", 2,
			`xds.addresses: "a" is not host:port`},
		{"join --token-file " + state + "/none", 2, "none: no such file or directory (--token-file)"},
		{"join --group shop/web --ca-hash " + hash + " --token-file " + token + " --control-plane a:1 --set " +
			"log.level=loud", 2, `log.level: "loud" is not known`},
		{"join --group shop/web --ca-hash " + hash + " --token-file " + token + " --control-plane 127.0.15.53:1 --envoy " +
			"" + testenvoy.Path(t) + " --state " + state, 1, "control plane 127.0.15.53:1: nothing listens there"},
		{"join --service-account-token " + state + "/none", 2, "--service-account-token: xds.tokenFile: open "},
		{"join --service-account-token " + account + " --ca-file " + state + "/none", 2, "--ca-file: xds.caFile: open "},
		{"join --service-account-token " + account + " --ca-hash " + hash + " --control-plane 127.0.15.53:1 --state " + state +
			" --no-run", 1, "control plane 127.0.15.53:1: nothing listens there"},
		{"status -o yaml --state " + state, 2, `--output "yaml" is not known; want text or json`},
		{"leave --yes --state " + state, 1, state + ": this workload has not joined the mesh"},
		{"status now", 2, `unexpected argument "now"`},
	} {
		if code, _, stderr := start(t, strings.Fields(tc.args)...); code != tc.code ||
			!strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}
