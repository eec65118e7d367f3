package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/testchild"
)

// Secure makes ashored serve only TLS, with its certificate authority: workloads Join. The text is
// further YAML of the settings file, "ca: {validity: 1m}"; what the harness sets itself is sources,
// state, xds, metrics, admin.
func Secure(settings string) Option { return func(m *Mesh) { m.secure, m.settings = true, settings } }

// Sources are further sources of a mesh, which decide before its files: "{kind: mcp, address: …}".
func Sources(list ...string) Option { return func(m *Mesh) { m.sources = append(m.sources, list...) } }

// configure writes the settings file.
func (m *Mesh) configure() {
	m.T.Helper()
	sources := append(slices.Clone(m.sources), fmt.Sprintf("{kind: files, folder: %s}", m.Files), "{kind: store}")
	xds := "plaintextAddress: " + m.XDS()
	if m.secure {
		xds = "address: " + m.TLS()
	}
	text := fmt.Sprintf("sources: [%s]\nstate: %s\nxds: {%s}\nmetrics: {address: %q, targetsTokenFile: %s}\n"+
		"admin: {socket: %s}\n%s\n", strings.Join(sources, ", "), m.State, xds, m.Metrics(), m.TargetsToken(), m.Socket(),
		m.settings)
	if err := os.WriteFile(m.SettingsFile(), []byte(text), 0o600); err != nil {
		m.T.Fatal(err)
	}
}

// Reload gives ashored other sources, like Sources, and makes it reload its settings.
func (m *Mesh) Reload(sources ...string) {
	m.T.Helper()
	m.sources = sources
	m.configure()
	if err := syscall.Kill(m.Ashored.PID(), syscall.SIGHUP); err != nil {
		m.T.Fatal(err)
	}
}

// SettingsFile is the path of ashored's settings.
func (m *Mesh) SettingsFile() string { return filepath.Join(filepath.Dir(m.State), "ashored.yaml") }

// TargetsToken is the path of the token for Prometheus' service discovery, which a test writes.
func (m *Mesh) TargetsToken() string { return filepath.Join(filepath.Dir(m.State), "targets-token") }

// TLS is the address of discovery and the certificate authority of a secure mesh.
func (m *Mesh) TLS() string { return m.subnet + "1:15012" }

// Token makes a join token for a WorkloadGroup, once the group is known.
func (m *Mesh) Token(group, ttl string) admin.Token {
	m.T.Helper()
	var t admin.Token
	Eventually(m.T, "a join token for "+group, func() (err error) {
		t, err = admin.Send(context.Background(), m.Admin, admin.CallCreateToken, admin.TokenRequest{Group: group, TTL: ttl})
		return err
	})
	return t
}

// Line is the command that makes a machine join, as words, with the token in a file.
func Line(t testing.TB, token admin.Token) []string {
	t.Helper()
	if len(token.Join) < 3 || token.Join[0] != "ashore-agent" || token.Join[1] != "join" {
		t.Fatalf("the command to join is %q, want ashore-agent join …", token.Join)
	}
	words := append([]string{Program("ashore-agent")}, token.Join[1:]...)
	return append(words, "--token-file", TokenFile(t, token.Token))
}

// TokenFile is a file with a token.
func TokenFile(t testing.TB, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Join makes a token, runs its line as who pastes it, and waits until Envoy is ready.
func (m *Mesh) Join(w Workload) *Proxy {
	m.T.Helper()
	return m.JoinBy(Line(m.T, m.Token(w.Group, "1h")), w)
}

// JoinBy is Join with a line that the test has.
func (m *Mesh) JoinBy(line []string, w Workload) *Proxy {
	m.T.Helper()
	p := m.prepare(w)
	in, gid, flags := w.Within, uint32(0), briefDrain()
	if w.Redirected != nil {
		in, gid, flags = w.Redirected, ProxyGID, append(flags, "--interception", "redirect")
	}
	p.Process = start(m.T, "proxy "+w.Name, gid, slices.Concat(in.prefix(), line, flags, p.flags(w))...)
	p.Ready()
	return p
}

// briefDrain are the flags of workloads that join.
func briefDrain() []string { return []string{"--set", "drain.maximum=1s"} }

// Run starts the agent of a workload that has joined, again after it was killed or stopped, and
// does not wait.
func (p *Proxy) Run(flags ...string) {
	p.mesh.T.Helper()
	argv := append([]string{Program("ashore-agent"), "run", "--state", p.State}, flags...)
	p.Process = start(p.mesh.T, p.name, 0, argv...)
}

// Report is what "ashore-agent status" says, as far as tests ask.
type Report struct {
	Well  bool `json:"well"`
	Lines []struct{ Name, State, Text string }
	// Serial is that of the certificate.
	Serial string `json:"serial"`
}

// Line is "state text" of one line of a report.
func (r Report) Line(name string) string {
	for _, l := range r.Lines {
		if l.Name == name {
			return l.State + " " + l.Text
		}
	}
	return ""
}

// Report asks for the status as a user does.
func (p *Proxy) Report() (Report, error) {
	var r Report
	out, code, err := Command("ashore-agent", "status", "--state", p.State, "-o", "json")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("ashore-agent status ended with %d and printed %q: %w", code, out, err)
	}
	return r, nil
}

// WantLine waits until a line of the status has all of words.
func (p *Proxy) WantLine(line string, words ...string) {
	p.mesh.T.Helper()
	Eventually(p.mesh.T, fmt.Sprintf("status of %s: %s with %q", p.name, line, words), func() error {
		r, err := p.Report()
		if err != nil {
			return err
		}
		if !hasAll(r.Line(line), words) {
			return fmt.Errorf("it says %q", r.Line(line))
		}
		return nil
	})
}

// Command runs one of the programs under test to its end, and returns what it printed and its exit
// code.
func Command(program string, args ...string) (string, int, error) {
	return toEnd(append([]string{Program(program)}, args...))
}

// toEnd runs a command to its end.
func toEnd(argv []string) (string, int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := testchild.Start(cmd)
	if err != nil {
		return "", 0, err
	}
	var exit *exec.ExitError
	if err := wait(); err != nil && !errors.As(err, &exit) {
		return out.String(), 0, err
	}
	return out.String(), cmd.ProcessState.ExitCode(), nil
}

// Paste runs a line that makes a machine join to its end: it joins, and runs nothing.
func Paste(line []string) (string, int, error) { return toEnd(append(slices.Clone(line), "--no-run")) }

// Paste is Paste of a workload by that name, address and state folder.
func (m *Mesh) Paste(line []string, name, ip, state string, flags ...string) (string, int, error) {
	return Paste(append(append(slices.Clone(line), "--name", name, "--address", ip, "--state", state), flags...))
}

// Agent starts the agent of a workload that was enrolled, and does not wait.
func (m *Mesh) Agent(id *Identity, flags ...string) *Proxy {
	m.T.Helper()
	p := &Proxy{Process: &Process{name: "agent " + id.IP}, mesh: m, IP: id.IP, State: id.State}
	p.Run(flags...)
	return p
}

// Identity is that of a workload without an Envoy, in the hands of the test.
type Identity struct {
	// IP and State are the workload's address and state folder.
	IP, State string
	// Certificate has the chain as the workload presents it.
	Certificate tls.Certificate
	// Roots are those that it trusts.
	Roots *x509.CertPool
}

// Enrol has a workload join that runs no Envoy.
func (m *Mesh) Enrol(w Workload) *Identity {
	m.T.Helper()
	p := m.prepare(w)
	line := slices.Concat(Line(m.T, m.Token(w.Group, "1h")), briefDrain(), p.flags(w))
	if out, code, err := Paste(line); err != nil || code != 0 {
		m.T.Fatalf("join %s: exit code %d, error %v:\n%s", w.Name, code, err, out)
	}
	id, err := LoadIdentity(p.State)
	if err != nil {
		m.T.Fatal(err)
	}
	id.IP = p.IP
	return id
}

// LoadIdentity reads that of a state folder.
func LoadIdentity(state string) (*Identity, error) {
	file := filepath.Join(state, "identity.pem")
	c, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return nil, err
	}
	roots, err := os.ReadFile(filepath.Join(state, "roots.pem"))
	if err != nil {
		return nil, err
	}
	id := &Identity{State: state, Certificate: c, Roots: x509.NewCertPool()}
	if !id.Roots.AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("%s has no root certificates", state)
	}
	return id, nil
}

// Audited waits until the audit log has an event with that action whose other parts have all of
// words.
func (m *Mesh) Audited(action string, words ...string) audit.Event {
	m.T.Helper()
	var found audit.Event
	Eventually(m.T, fmt.Sprintf("audited: %s with %q", action, words), func() error {
		events, err := admin.Send(context.Background(), m.Admin, admin.CallAudit, admin.AuditQuery{Lines: 1000})
		var others []string
		for _, e := range events {
			text := fmt.Sprintf("%s %s %s %s %v", e.Actor, e.Target, e.Outcome, e.Reason, e.Details)
			switch {
			case e.Action != action:
			case hasAll(text, words):
				found = e
			default:
				others = append(others, text)
			}
		}
		if err == nil && found.Action == "" {
			err = fmt.Errorf("of that action it has %q", others)
		}
		return err
	})
	return found
}

// WantProblem waits until one problem contains all words.
func (m *Mesh) WantProblem(words ...string) {
	m.T.Helper()
	Eventually(m.T, fmt.Sprintf("a problem with %q", words), func() error {
		list, err := admin.Send(context.Background(), m.Admin, admin.CallProblems, admin.None{})
		if err != nil {
			return err
		}
		var texts []string
		for _, p := range list {
			if hasAll(p.Text, words) {
				return nil
			}
			texts = append(texts, p.Text)
		}
		return fmt.Errorf("the problems are %q", texts)
	})
}

// hasAll reports whether a text contains all words.
func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
