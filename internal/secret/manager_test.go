package secret

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
)

// newTestManager has a folder and a store in memory.
func newTestManager(t *testing.T) *Manager {
	t.Helper()
	dir := t.TempDir()
	return NewManager(Config{Dir: filepath.Join(dir, "secrets"), Records: record.NewMemory(),
		KeyFile: filepath.Join(dir, "secrets.key")})
}

// read reads the folder and the store once, and the cluster if it is due.
func (m *Manager) read(t *testing.T, now time.Time) *Set {
	t.Helper()
	m.changed(FromStore)
	return m.merge(t.Context(), now)
}

func (m *Manager) write(t *testing.T, name string, s Secret) {
	t.Helper()
	dir := filepath.Join(m.cfg.Dir, name)
	err := os.MkdirAll(dir, 0o700)
	for _, p := range s.parts() {
		if *p.value != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, p.file), []byte(*p.value), 0o600))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *Manager) wantProblems(t *testing.T, want ...string) {
	t.Helper()
	got := m.Problems()
	if len(got) != len(want) {
		t.Errorf("problems are %v, want %q", got, want)
		return
	}
	for i, p := range got {
		if !strings.Contains(p.String(), want[i]) {
			t.Errorf("problem %v, want %q", p, want[i])
		}
	}
}

func wantCertificate(t *testing.T, set *Set, name string, want Secret) {
	t.Helper()
	if got, _ := set.Namespace("edge", false).Resource(ResourcePrefix + name); got.Certificate != want.Certificate {
		t.Errorf("%s has another certificate", name)
	}
}

// What is unusable in the folder never replaces what was read before.
func TestFolder(t *testing.T) {
	t.Parallel()
	m, now := newTestManager(t), time.Now()
	first, second := valid(t, "web.test"), valid(t, "web.test")
	m.read(t, now)
	m.wantProblems(t, "the secrets of the folder cannot be read")
	m.write(t, "edge/web", first)
	m.write(t, "edge/Bad_Name", first)
	m.write(t, ".git/x", Secret{})
	set := m.read(t, now)
	wantCertificate(t, set, "web", first)
	m.wantProblems(t, "secret edge/Bad_Name: secret edge/Bad_Name: want NAMESPACE/NAME of lower-case letters")
	if err := os.RemoveAll(filepath.Join(m.cfg.Dir, "edge/Bad_Name")); err != nil {
		t.Fatal(err)
	}
	if m.read(t, now) != set {
		t.Error("nothing changed, and the set did")
	}

	m.write(t, "edge/web", Secret{Certificate: second.Certificate})
	wantCertificate(t, m.read(t, now), "web", first)
	m.wantProblems(t, "secret edge/web: tls.key: tls: private key does not match public key; what was read before stays in use")
	m.write(t, "edge/web", second)
	wantCertificate(t, m.read(t, now), "web", second)
	m.wantProblems(t)

	m.read(t, now.Add(time.Hour))
	m.wantProblems(t, `tls.crt: the certificate for "web.test" expired on`)
	wantCertificate(t, m.read(t, now), "web", second)
	key := filepath.Join(m.cfg.Dir, "edge/web/tls.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	wantCertificate(t, m.read(t, now), "web", second)
	m.wantProblems(t, "every user of this machine may read or write "+key)
	if err := os.RemoveAll(filepath.Join(m.cfg.Dir, "edge")); err != nil {
		t.Fatal(err)
	}
	wantCertificate(t, m.read(t, now), "web", second)
	m.wantProblems(t, "has become empty")
	m.write(t, "edge/api", first)
	wantCertificate(t, m.read(t, now), "web", Secret{})
	m.wantProblems(t)
}

// The store has secrets encrypted. Another replica needs the key.
func TestStore(t *testing.T) {
	t.Parallel()
	ctx, now := t.Context(), time.Now()
	m := NewManager(Config{Records: record.NewMemory(), KeyFile: filepath.Join(t.TempDir(), "secrets.key")})
	web := Name{"edge", "web"}
	first, second := valid(t, "web.test"), valid(t, "web.test")
	if _, err := m.Create(ctx, web, Secret{Certificate: first.Certificate, Key: second.Key}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a key of another certificate: %v", err)
	}
	large := Secret{Authorities: strings.Repeat(first.Authorities, 200)}
	if _, err := m.Create(ctx, web, large); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "secrets.dir") {
		t.Errorf("a large one: %v", err)
	}
	if _, err := m.Create(ctx, Name{"edge", "a/b"}, first); !errors.Is(err, ErrInvalid) {
		t.Errorf("a wrong name: %v", err)
	}
	for _, s := range []Secret{first, second} {
		if _, err := m.Create(ctx, web, s); err != nil {
			t.Fatal(err)
		}
		wantCertificate(t, m.read(t, now), "web", s)
	}
	r, err := m.cfg.Records.Get(ctx, record.Key{Table: table, Name: "edge/web"})
	if err != nil || bytes.Contains(r.Value, []byte("PRIVATE KEY")) || len(r.Value) < len(second.Key) {
		t.Errorf("stored is %q, %v", r.Value, err)
	}
	if got := m.List(); len(got) != 1 || got[0].String() != "edge/web" || got[0].Source != FromStore || got[0].Hosts[0] != "web.test" ||
		got[0].Expires.IsZero() || got[0].Authorities != 1 {
		t.Errorf("listed are %+v", got)
	}

	other := NewManager(Config{Records: m.cfg.Records, KeyFile: filepath.Join(t.TempDir(), "secrets.key")})
	wantCertificate(t, other.read(t, now), "web", Secret{})
	other.wantProblems(t, "copy the file from the replica that created them")
	if _, err := other.Create(ctx, web, first); err == nil || !strings.Contains(err.Error(), "copy the file") {
		t.Errorf("created without the key: %v", err)
	}
	if err := os.WriteFile(other.cfg.KeyFile, []byte(strings.Repeat("ab", keySize)), 0o600); err != nil {
		t.Fatal(err)
	}
	other.read(t, now)
	other.wantProblems(t, "secret edge/web: it was encrypted with another key")
	// A value does not count under another name.
	if err := m.cfg.Records.Commit(ctx, record.Write{Key: record.Key{Table: table, Name: "edge/api"}, Value: r.Value}); err != nil {
		t.Fatal(err)
	}
	wantCertificate(t, m.read(t, now), "api", Secret{})

	if err := m.Delete(ctx, Name{"edge", "none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted what is not there: %v", err)
	}
	if err := m.Delete(ctx, web); err != nil {
		t.Fatal(err)
	}
	wantCertificate(t, m.read(t, now), "web", Secret{})
}

// The folder takes precedence over the store. Run sends each change once.
func TestRun(t *testing.T) {
	t.Parallel()
	m := newTestManager(t)
	stored, file := valid(t, "web.test"), valid(t, "web.test")
	m.write(t, "edge/web", file)
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan *Set), make(chan error, 1)
	go func() { done <- m.Run(ctx, out) }()
	wantCertificate(t, <-out, "web", file)
	for _, n := range []string{"web", "api"} {
		if _, err := m.Create(ctx, Name{"edge", n}, stored); err != nil {
			t.Fatal(err)
		}
	}
	set := <-out
	wantCertificate(t, set, "web", file)
	wantCertificate(t, set, "api", stored)
	m.wantProblems(t, "secret edge/web: the folder and the store have it")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	m.write(t, "edge/api", Secret{})
	wantCertificate(t, m.read(t, time.Now()), "api", stored)
	m.wantProblems(t, "; it is not used", "secret edge/web: the folder and the store have it")
}

// cluster is a source whose content tests change.
type cluster struct {
	task.Broadcaster
	secrets map[Name]Secret
	err     error
}

func (c *cluster) Read() (map[Name]Secret, error) { return c.secrets, c.err }

// The folder and the store take precedence over the cluster, whose secrets are restricted. What is
// unusable there, or cannot be read, does not replace what was read before.
func TestCluster(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, second, stored := valid(t, "web.test"), valid(t, "web.test"), valid(t, "web.test")
	web := Name{"edge", "web"}
	c := &cluster{secrets: map[Name]Secret{web: first, {"edge", "bad"}: {Certificate: first.Certificate, Key: second.Key}}}
	m := NewManager(Config{Records: record.NewMemory(), KeyFile: filepath.Join(t.TempDir(), "secrets.key"), Cluster: c})
	read := func(want Secret, open bool, problems ...string) {
		t.Helper()
		m.changed(FromCluster)
		set := m.read(t, now)
		m.wantProblems(t, problems...)
		got, _ := set.Namespace("edge", true).Resource("kubernetes://web")
		if got.Certificate != want.Certificate {
			t.Error("another certificate is used")
		}
		if _, ok := set.Namespace("edge", false).Resource("kubernetes://web"); ok != open {
			t.Errorf("every proxy may have it: %v, want %v", ok, open)
		}
	}
	read(first, false, "secret edge/bad: tls.key: tls: private key does not match public key; it is not used")
	if got := m.List(); len(got) != 1 || got[0].Source != FromCluster {
		t.Errorf("listed are %+v", got)
	}
	c.secrets = map[Name]Secret{web: {Certificate: "x", Key: "y"}}
	read(first, false, "; what was read before stays in use")
	c.secrets, c.err = map[Name]Secret{web: first}, errors.New("connection refused")
	read(first, false, "the secrets of the cluster cannot be read; those that were read before stay in use: connection refused")
	c.secrets = map[Name]Secret{web: second} // the API server has lost others
	read(second, false, "connection refused")
	c.err = nil
	read(second, false)
	if _, err := m.Create(t.Context(), web, stored); err != nil {
		t.Fatal(err)
	}
	read(stored, true, "secret edge/web: the store and the cluster have it: that of the store is used")
	m.read(t, now.Add(30*time.Second))
	m.wantProblems(t, "secret edge/web: the store and the cluster have it")
	m.read(t, now.Add(2*time.Minute))
	if got := len(m.Problems()); got != 3 { // both have expired
		t.Errorf("%d problems: %v", got, m.Problems())
	}
}
