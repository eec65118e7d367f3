package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// house is where managers of one replica live, one after the other: its folder, its records, its
// clock and its facts.
type house struct {
	t       *testing.T
	config  ManagerConfig
	records *record.Memory

	mu     sync.Mutex
	now    time.Time     // guarded by mu
	facts  []Dependent   // guarded by mu
	events []audit.Event // guarded by mu
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, records: record.NewMemory(), now: noon}
	h.config = ManagerConfig{
		Dir: filepath.Join(t.TempDir(), "ca"), TrustDomain: "cluster.local", Names: []string{"Mesh.Example",
			"127.0.12.1"}, Records: h.records, Log: testlog.New(t),
		Now:        func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.now },
		Dependents: func(context.Context) ([]Dependent, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.facts, nil },
		Audit:      func(e audit.Event) { h.mu.Lock(); defer h.mu.Unlock(); h.events = append(h.events, e) },
	}
	return h
}

// move moves in: a manager starts.
func (h *house) move() *Manager {
	h.t.Helper()
	m, err := NewManager(h.t.Context(), h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// later lets time go by, and has the manager look.
func (h *house) later(m *Manager, d time.Duration) {
	h.mu.Lock()
	h.now = h.now.Add(d)
	h.mu.Unlock()
	if m != nil {
		m.look(h.t.Context())
	}
}

func (h *house) fact(f ...Dependent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = f
}

// audited are the events of an action, as "outcome step".
func (h *house) audited(action string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, e := range h.events {
		if e.Action == action {
			out = append(out, strings.TrimSpace(e.Outcome+" "+e.Details["step"]+" "+e.Actor))
		}
	}
	return out
}

func (h *house) at(name string) string { return filepath.Join(h.config.Dir, name) }

func show(t *testing.T, m *Manager) admin.Authority {
	t.Helper()
	s, err := m.Show(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// believes says what keeps those who trust some roots from believing a workload's new certificate.
func believes(t *testing.T, s *Signer, now time.Time, roots ...*x509.Certificate) error {
	t.Helper()
	leaf, err := Issue(s, Grant{ID: web(t), Key: NewKey().Public()}, now)
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	for _, c := range s.Intermediates {
		between.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: NewBundle(roots...).Pool(), Intermediates: between,
		CurrentTime: now})
	return err
}

// joins says what keeps a machine that knows the hash of a root alone from believing the control
// plane: a real handshake.
func joins(t *testing.T, m *Manager, hash, name string, now time.Time) error {
	t.Helper()
	a, b := net.Pipe()
	server := tls.Server(a, &tls.Config{GetCertificate: m.ServerCertificate, MinVersion: tls.VersionTLS13})
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Handshake(); _ = server.Close() }()
	defer func() { _ = b.Close(); <-served }()
	var found error
	client := tls.Client(b, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			certs := s.PeerCertificates
			i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return RootID(c) == hash })
			if i < 0 {
				return errors.New("the root is not presented")
			}
			between := x509.NewCertPool()
			for _, c := range certs[1:] {
				between.AddCert(c)
			}
			if got := certs[0].URIs; len(got) != 1 || got[0].String() != "spiffe://cluster.local/ashore/control-plane" {
				return errors.New("not the control plane's")
			}
			_, err := certs[0].Verify(x509.VerifyOptions{DNSName: name, Roots: NewBundle(certs[i]).Pool(),
				Intermediates: between, CurrentTime: now})
			return err
		}})
	if err := client.Handshake(); err != nil {
		found = err
	}
	return found
}

// An empty folder gets a root and an intermediate, its keys for their owner alone, and a restart
// finds them again.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	for path, want := range map[string]fs.FileMode{h.config.Dir: 0o700 | fs.ModeDir, h.at(rootFile): 0o600,
		h.at(intermediateFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info, err, want)
		}
	}
	again := h.move()
	if again.Bundle().ID != m.Bundle().ID || !again.Signer().Cert.Equal(m.Signer().Cert) {
		t.Error("a restart made another authority")
	}
	if got := m.Signer(); !got.Cert.MaxPathLenZero || got.Cert.Equal(got.Root) ||
		got.Root.NotAfter.Sub(noon) != rootLife || got.Cert.NotAfter.Sub(noon) != intermediateLife {
		t.Errorf("it signs with %v until %s, root until %s", got.Cert.Subject, got.Cert.NotAfter, got.Root.NotAfter)
	}
	if err := believes(t, m.Signer(), noon, m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
	s := show(t, m)
	if s.Kind != "self-signed" || len(s.Roots) != 1 || s.Roots[0].State != "signs" || len(s.Problems) > 0 ||
		s.Signer.Root != s.Roots[0].Root || !s.Signer.Renew.After(noon) {
		t.Errorf("shown: %+v", s)
	}
}

// No record ever holds a key.
func TestRecordsHoldNoKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	if _, err := m.Rotate(t.Context(), RotateRequest{}); err != nil {
		t.Fatal(err)
	}
	records, err := h.records.List(t.Context(), "ca")
	if err != nil || len(records) == 0 {
		t.Fatal(records, err)
	}
	for _, name := range []string{rootFile, intermediateFile} {
		p, err := folder(h.config.Dir).pair(name)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(p.key)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if strings.Contains(string(r.Value), string(der)) || strings.Contains(string(r.Value), "PRIVATE") {
				t.Errorf("%s holds a key", r.Name)
			}
		}
	}
}

// Whatever was lost or damaged, no new root takes its place: what is to be done is said.
func TestSelfSignedRefuses(t *testing.T) {
	t.Parallel()
	other := newHouse(t)
	other.move()
	foreign, err := os.ReadFile(other.at(rootFile))
	if err != nil {
		t.Fatal(err)
	}
	forget := func(h *house) { h.config.Records = record.NewMemory() }
	remove := func(names ...string) func(*house) {
		return func(h *house) {
			for _, n := range names {
				if err := os.Remove(h.at(n)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	both := func(fs ...func(*house)) func(*house) {
		return func(h *house) {
			for _, f := range fs {
				f(h)
			}
		}
	}
	put := func(name string, text []byte, mode fs.FileMode) func(*house) {
		return func(h *house) {
			replaceFile(t, h.at(name), text)
			if err := os.Chmod(h.at(name), mode); err != nil {
				t.Error(err)
			}
		}
	}
	cut := func(name string, to int) func(*house) {
		return func(h *house) {
			if err := os.Truncate(h.at(name), int64(to)); err != nil {
				t.Error(err)
			}
		}
	}
	const restore = "restore the file from a backup"
	for name, tc := range map[string]struct {
		damage func(*house)
		want   []string // empty: it starts with the same root
	}{
		"nothing":               {func(*house) {}, nil},
		"intermediate lost":     {remove(intermediateFile), nil},
		"intermediate cut off":  {cut(intermediateFile, 100), nil},
		"intermediate foreign":  {put(intermediateFile, foreign, 0o600), nil},
		"records lost":          {forget, nil},
		"leftover of a kill":    {put(".root-key.pem.new-123", []byte("half"), 0o600), nil},
		"root key lost":         {remove(rootFile), nil}, // it signs on, and says until when
		"both keys lost":        {remove(rootFile, intermediateFile), []string{"the records say that root sha256:", "its key is not in", "restore that file from a backup"}},
		"root key empty":        {cut(rootFile, 0), []string{"root-key.pem: tls: failed to find any PEM data", restore}},
		"root key cut off":      {cut(rootFile, 100), []string{"root-key.pem: tls: failed to find any PEM data", restore}},
		"without certificate":   {cut(rootFile, 260), []string{"root-key.pem: tls: failed to find certificate PEM data", restore}},
		"root key of another":   {both(put(rootFile, foreign, 0o600), remove(intermediateFile)), []string{"the records say that root sha256:", "restore that file from a backup of the same time"}},
		"root key for everyone": {func(h *house) { put(rootFile, mustRead(t, h.at(rootFile)), 0o644)(h) }, []string{"root-key.pem: every user of this machine can read the key (mode 0644): chmod 600"}},
		"key and records lost":  {both(forget, remove(rootFile)), []string{"intermediate-key.pem says that there was a root", "restore both from a backup", "every workload has to join again"}},
		"record damaged": {func(h *house) {
			if err := h.records.Commit(t.Context(), record.Write{Key: record.Key{Table: "ca", Name: stateName}, Value: []byte(`{"v":1`),
				Version: record.Any}); err != nil {
				t.Error(err)
			}
		}, []string{"ca rotation: its record cannot be read: unexpected end of JSON input: restore the store from a backup"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			was := h.move()
			tc.damage(h)
			m, err := NewManager(t.Context(), h.config)
			if len(tc.want) > 0 {
				for _, w := range tc.want {
					if err == nil || !strings.Contains(err.Error(), w) {
						t.Errorf("got %v, want %q", err, w)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if m.Bundle().ID != was.Bundle().ID {
				t.Error("it has another root")
			}
			if err := believes(t, m.Signer(), noon, was.Bundle().Roots...); err != nil {
				t.Error(err)
			}
			if entries, err := filepath.Glob(h.at(".*")); err != nil || len(entries) > 0 {
				t.Errorf("left over: %v, %v", entries, err)
			}
		})
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return text
}

// Without the root's key the intermediate serves to its end, and everybody can see until when; put
// back, it is used.
func TestRootKeyAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.move()
	key := mustRead(t, h.at(rootFile))
	if err := os.Remove(h.at(rootFile)); err != nil {
		t.Fatal(err)
	}
	m := h.move()
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0],
		"the intermediate cannot be renewed and expires at 2026-12-21T12:00:00Z") {
		t.Errorf("problems: %q", p)
	}
	if _, err := m.Rotate(t.Context(), RotateRequest{}); !errors.Is(err, ErrRotate) ||
		!strings.Contains(err.Error(), "the new root is made where the old one's key is") {
		t.Errorf("rotated without its key: %v", err)
	}
	was := m.Signer()
	h.later(m, 20*24*time.Hour)
	if m.Signer() != was {
		t.Error("it signs with something else")
	}
	replaceFile(t, h.at(rootFile), key)
	h.later(m, time.Minute)
	if m.Signer() == was || len(show(t, m).Problems) > 0 {
		t.Errorf("the key is back and not used: %q", show(t, m).Problems)
	}
}

// The control plane is believed by who knows a root's hash, by every name that it is reached by,
// and by no other.
func TestServerCertificate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	id := RootID(m.Signer().Root)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "istiod.istio-system.svc",
		"istiod-remote.istio-system.svc", "istio-pilot.istio-system.svc", "mesh.example", "127.0.12.1"} {
		if err := joins(t, m, id, name, noon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := joins(t, m, id, "other.example", noon); err == nil {
		t.Error("it is believed by a name that is not its own")
	}
	if err := joins(t, m, "sha256:00", "localhost", noon); err == nil {
		t.Error("another root is believed")
	}
	// A workload has a certificate of the same root, and is no control plane; neither is the
	// control plane a workload.
	cert, err := m.ServerCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := newLab(t, nil).peers.named(cert.Leaf); err == nil {
		t.Errorf("the control plane is the workload %s", p.ID)
	}
	if last := cert.Certificate[len(cert.Certificate)-1]; string(last) != string(m.Signer().Root.Raw) {
		t.Error("the chain does not end with the root")
	}
	for _, bad := range []string{"a b", "host:15012", "", "*.example"} {
		c := h.config
		c.Names = []string{bad}
		if _, err := NewManager(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), "cannot be a name of the control plane") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A clock that leaps ahead and back leaves nothing behind that is not valid yet.
func TestClockLeapsBack(t *testing.T) {
	t.Parallel()
	for _, leap := range []time.Duration{13 * time.Hour, 20 * 24 * time.Hour} {
		h := newHouse(t)
		m := h.move()
		h.later(m, leap)
		h.later(nil, -leap) // the manager has not looked since
		h.later(m, 0)
		if p := show(t, m).Problems; len(p) != 0 {
			t.Errorf("after %s ahead: problems %q", leap, p)
		}
		if err := joins(t, m, RootID(m.Signer().Root), "localhost", noon); err != nil {
			t.Errorf("after %s ahead: %v", leap, err)
		}
		if c := m.Signer().Cert; noon.Before(c.NotBefore) {
			t.Errorf("after %s ahead what signs begins at %s", leap, c.NotBefore)
		}
	}
}

// The root's key is not held in memory: it signs nothing more once its file is taken away.
func TestRootKeyTakenAwayWhileRunning(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	if err := os.Remove(h.at(rootFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rotate(t.Context(), RotateRequest{}); !errors.Is(err, ErrRotate) {
		t.Errorf("it begins a rotation: %v", err)
	}
	h.later(m, idleInterval)
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0], "its key is not in") {
		t.Errorf("problems: %q", p)
	}
}
