package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// impostor answers with TLS and those certificates; it returns its address.
func impostor(t *testing.T, m *harness.Mesh, c *tls.Certificate) string {
	t.Helper()
	l, err := tls.Listen("tcp", m.IP()+":15012", &tls.Config{Certificates: []tls.Certificate{*c},
		NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			secure, ok := conn.(*tls.Conn)
			if ok {
				_ = secure.HandshakeContext(t.Context()) // who is there hangs up
			}
			_ = conn.Close() // the same
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

// Every error after a join command is pasted says what, where and what to do.
func TestJoinMessages(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web")}, harness.Secure(""))
	token := m.Token("shop/web", "")
	good := harness.Line(t, token)
	with := func(pairs ...string) []string {
		line := slices.Clone(good)
		for i := 0; i < len(pairs); i += 2 {
			if at := slices.Index(line, pairs[i]); at >= 0 {
				line[at+1] = pairs[i+1]
			} else {
				line = append(line, pairs[i], pairs[i+1])
			}
		}
		return line
	}
	const plane = "spiffe://cluster.local/ashore/control-plane"
	root := newRoot(t, "clock")
	clock := forger{signer: root, chain: [][]byte{root.Cert.Raw}}
	pinned := ca.RootID(root.Cert)
	early := impostor(t, m, clock.issue(t, plane, 2*time.Hour, 3*time.Hour))
	late := impostor(t, m, clock.issue(t, plane, -3*time.Hour, -2*time.Hour))
	thief := impostor(t, m, clock.issue(t, "spiffe://cluster.local/ns/shop/sa/web", -time.Hour, time.Hour))
	closed := m.IP() + ":15012"
	for name, tc := range map[string]struct {
		line  []string
		code  int
		words []string
	}{
		"hash of another root": {with("--ca-hash", pinned), 1, []string{m.TLS(), "is not trusted", "and the join line says " + pinned, "do not go on if the hashes still differ"}},
		"hash cut short":       {with("--ca-hash", pinned[:40]), 2, []string{"--ca-hash", "64 hexadecimal digits"}},
		"clock behind":         {with("--control-plane", early, "--ca-hash", pinned), 1, []string{early, "begins at", "from now by this machine's clock", "set the clock (timedatectl, chrony)"}},
		"clock ahead":          {with("--control-plane", late, "--ca-hash", pinned), 1, []string{late, "ended at", "ago by this machine's clock", "set the clock (timedatectl, chrony)"}},
		"a workload answers":   {with("--control-plane", thief, "--ca-hash", pinned), 1, []string{thief, "is that of \"spiffe://cluster.local/ns/shop/sa/web\" and not of the control plane", "do not trust it"}},
		"nobody listens":       {with("--control-plane", closed), 1, []string{closed, "nothing listens there: see whether ashored runs"}},
		"no TLS":               {with("--control-plane", m.Metrics()), 1, []string{m.Metrics(), "it does not speak TLS", "15012"}},
		"name unknown":         {with("--control-plane", "ashore.invalid:15012"), 1, []string{"the name ashore.invalid", "DNS", "/etc/resolv.conf"}},
		"no port":              {with("--control-plane", "127.0.0.1"), 2, []string{"--control-plane", "\"127.0.0.1\" is not host:port", "15012"}},
		"token cut short":      {with("--token-file", harness.TokenFile(t, "ashore-join.abc")), 2, []string{"--token-file", "want ashore-join.ID.SECRET, copied whole"}},
		"group without slash":  {with("--group", "web"), 2, []string{"--group", "want namespace/name, such as shop/web"}},
		"name with a space":    {with("--name", "web 1"), 2, []string{"--name", "\"web 1\""}},
		"address of nobody":    {with("--address", "web-1"), 2, []string{"--address", "\"web-1\""}},
		"flag mistyped":        {append(slices.Clone(good), "--stat", "x"), 2, []string{"--stat"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := filepath.Join(t.TempDir(), "state")
			out, code, err := harness.Paste(append(tc.line, "--state", state))
			if err != nil || code != tc.code {
				t.Errorf("exit code %d, error %v, want %d", code, err, tc.code)
			}
			for _, w := range tc.words {
				if !strings.Contains(out, w) {
					t.Errorf("nothing says %q in:\n%s", w, out)
				}
			}
			if strings.Contains(out, token.Token[len(token.Token)-20:]) {
				t.Errorf("it tells the token:\n%s", out)
			}
			if _, err := os.Stat(filepath.Join(state, "identity.pem")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("an identity is kept: %v", err)
			}
			t.Logf("%s", strings.TrimSpace(out))
		})
	}
}

// What prevents an agent from running is in its log and, while it runs, in its status.
func TestRunMessages(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"a.yaml": group("a")}, harness.Secure(""))
	id := m.Enrol(harness.Workload{Name: "a-1", Group: "shop/a"})
	busy, err := net.Listen("tcp", fmt.Sprintf("%s:15020", id.IP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }() // closed below
	run := func(code int, words []string, flags ...string) {
		t.Helper()
		out, got, err := harness.Command("ashore-agent", append([]string{"run", "--state", id.State}, flags...)...)
		if err != nil || got != code {
			t.Errorf("exit code %d, error %v, want %d", got, err, code)
		}
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("nothing says %q in:\n%s", w, out)
			}
		}
	}
	run(2, []string{"--envoy", "/nowhere/envoy"}, "--envoy", "/nowhere/envoy")
	run(1, []string{id.IP + ":15020 is in use", "--address"})
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	out, code, err := harness.Command("ashore-agent", "status", "--state", id.State)
	if err != nil || code != 1 || !strings.Contains(out, "the agent does not run") ||
		!strings.Contains(out, "start the agent: ashore-agent run --state "+id.State) {
		t.Errorf("status: exit code %d, error %v:\n%s", code, err, out)
	}
	crashing := filepath.Join(t.TempDir(), "envoy")
	const script = "#!/bin/sh\n[ \"$1\" != --version ] || { echo 'version: 0/1.40.0/'; exit 0; }\necho 'cannot do this' >&2\nexit 3\n"
	if err := os.WriteFile(crashing, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := m.Agent(id, "--envoy", crashing)
	p.WantLine("envoy", "bad", "exit status 3")
	p.Stop()
}
