package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// fleet is a replica that has the root's key and is served over TLS.
type fleet struct {
	t     *testing.T
	first *house
	m     *Manager
	stop  func()
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, first: newHouse(t)}
	listener, err := net.Listen("tcp", "127.0.13.3:0")
	if err != nil {
		t.Fatal(err)
	}
	f.first.config.Address = listener.Addr().String()
	f.m = f.first.move()
	f.stop = serveReplicas(t, f.m, listener)
	return f
}

// serveReplicas serves a manager until the test ends, or stop is called.
func serveReplicas(t *testing.T, m *Manager, listener net.Listener) (stop func()) {
	t.Helper()
	s := NewServer(ServerConfig{Signer: m.Signer, Bundle: m.Bundle, Replicas: m, Now: m.config.Now, Audit: m.config.Audit})
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(ServerTLS(m.ServerCertificate))))
	s.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			g.Stop()
			<-done
		}
	}
	t.Cleanup(stop)
	return stop
}

// token makes a token, in a file.
func (f *fleet) token() string {
	f.t.Helper()
	text, _, err := f.m.CreateReplicaToken(time.Hour, "op")
	if err != nil {
		f.t.Fatal(err)
	}
	return f.file(text)
}

func (f *fleet) file(text string) string {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// another is the house of one more replica, which shares the records.
func (f *fleet) another(token string) *house {
	h := newHouse(f.t)
	h.records = f.first.records
	h.config.Records, h.config.Address = f.first.records, "127.0.13.4:1"
	if token != "" {
		info, err := os.Stat(token)
		must(f.t, err)
		must(f.t, os.MkdirAll(h.config.Dir, 0o700))
		must(f.t, os.WriteFile(h.at(replicaTokenFile), mustRead(f.t, token), info.Mode()))
	}
	h.config.Replicas = func() []admin.Replica { return []admin.Replica{{Name: "one", Address: f.first.config.Address}} }
	return h
}

// pass lets time go by for replicas, and has them look.
func (f *fleet) pass(d time.Duration, h *house, two *Manager) {
	f.first.later(f.m, d)
	h.later(two, d)
}

// A new replica gets an intermediate of its own by a token.
func TestReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := f.token()
	h := f.another(file)
	two := h.move()
	if two.Bundle().ID != f.m.Bundle().ID || two.Signer().Cert.Equal(f.m.Signer().Cert) || two.Signer().Root == nil {
		t.Error("the replicas do not trust the same, or sign with one key")
	}
	if err := believes(t, two.Signer(), noon, f.m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
	if got := f.first.audited(audit.ReplicaIssue); len(got) != 1 || !strings.Contains(got[0], "replica token") {
		t.Errorf("audited is %q", got)
	}
	if err := os.Remove(h.at(replicaTokenFile)); err != nil { // it has served
		t.Fatal(err)
	}
	if again := h.move(); !again.Signer().Cert.Equal(two.Signer().Cert) {
		t.Error("after a restart it has another intermediate")
	}
	if s := show(t, two); len(s.Replicas) != 1 || s.Replicas[0].Name != "one" || len(s.Problems) != 0 {
		t.Errorf("shown are %+v, %q", s.Replicas, s.Problems)
	}
}

// A replica that cannot prove that it belongs to the mesh gets nothing, and says what to do.
func TestReplicaRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		token func(f *fleet) string
		want  string
	}{
		"no token":  {func(*fleet) string { return "" }, "put what \"ashorectl ca replica-token\" prints there into"},
		"not one":   {func(f *fleet) string { return f.file("ashore-join.x.y") }, "does not have the form"},
		"open file": {func(f *fleet) string { file := f.token(); must(t, os.Chmod(file, 0o644)); return file }, "every user of this machine can read"},
		"mistyped": {func(f *fleet) string {
			text := strings.TrimSpace(string(mustRead(t, f.token())))
			i := len(replicaTokenPrefix)
			return f.file(text[:i] + string('a'+(text[i]-'a'+1)%20) + text[i+1:])
		}, "does not know the replica token"},
		"used": {func(f *fleet) string { file := f.token(); f.another(file).move(); return file }, "does not know the replica token: it was used"},
		"expired": {func(f *fleet) string {
			file := f.token()
			f.first.mu.Lock()
			f.first.now = noon.Add(time.Hour)
			f.first.mu.Unlock()
			return file
		}, "the replica token expired"},
		"of another mesh": {func(f *fleet) string { return newFleet(f.t).token() }, "it is of another mesh, or older than a rotation"},
		"nobody answers":  {func(f *fleet) string { file := f.token(); f.stop(); return file }, "replica 127.0.13.3:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			h := f.another(tc.token(f))
			m, err := newManager(h.config)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.own.start(t.Context(), noon); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A token serves one request. A token that was changed, and a caller that is no replica, get
// nothing.
func TestIntermediateIsForReplicas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	token := strings.TrimSpace(string(mustRead(t, f.token())))
	root := f.m.Signer().Root
	csr := func() []byte { return encodeRequest(t, NewKey(), x509.CertificateRequest{}) }
	call := func(token string, csr []byte, cert *tls.Certificate) error {
		c := controlPlaneTLS(NewBundle(root), "cluster.local", f.first.config.Now())
		if cert != nil {
			c.Certificates = []tls.Certificate{*cert}
		}
		got, err := (&replicaCall{tls: c, token: token, csr: string(csr)}).do(t.Context(), f.first.config.Address)
		if err == nil && (!got.IsCA || !got.MaxPathLenZero || got.CheckSignatureFrom(root) != nil) {
			t.Errorf("it is %+v", got)
		}
		return err
	}
	if err := call(token, csr(), nil); err != nil {
		t.Fatal(err)
	}
	forged, _ := newReplicaToken(RootID(root), f.first.config.Address)
	pair, err := f.m.activeKey()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, nil)
	l.root, l.signer = &Signer{Cert: root, Root: root, Key: pair.key}, f.m.Signer()
	server, err := issueServer(f.m.Signer(), f.m.Bundle(), "cluster.local", serverNames{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		token string
		cert  *tls.Certificate
		want  string
	}{
		"used":                       {token, nil, "does not know the replica token"},
		"forged token":               {forged, nil, "does not know the replica token"},
		"nobody":                     {"", nil, "is not accepted"},
		"a workload":                 {"", l.certificate(f.m.Signer(), "spiffe://cluster.local/ns/a/sa/b", noon, noon.Add(time.Hour), nil), "is not accepted"},
		"of a foreign root":          {"", l.certificate(labSigner(t, testRoot(t)), ControlPlaneID("cluster.local").String(), noon, noon.Add(time.Hour), nil), "is not accepted"},
		"a replica":                  {"", server, ""},
		"a replica with a bad token": {replicaTokenPrefix + "x", server, "does not know the replica token"},
	} {
		if err := call(tc.token, csr(), tc.cert); (err == nil) != (tc.want == "") || err != nil &&
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	if got := f.first.audited(audit.CertificateRefuse); len(got) == 0 {
		t.Error("a refusal is not audited")
	}
}

// Replicas renew their intermediates at half of their life, by the one that they have. While nobody
// with the root's key answers they go on until it ends, and say so.
func TestReplicaRenews(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.another(f.token())
	two := h.move()
	first := two.Signer().Cert
	f.pass(intermediateLife/2+time.Hour, h, two)
	f.pass(time.Minute, h, two) // the control plane's own certificate is of today again
	second := two.Signer().Cert
	if second.Equal(first) {
		t.Fatalf("it was not renewed: %q", show(t, two).Problems)
	}
	f.stop()
	f.pass(intermediateLife/2+time.Hour, h, two)
	if p := show(t, two).Problems; !two.Signer().Cert.Equal(second) || len(p) != 1 ||
		!strings.Contains(p[0], "cannot be renewed and expires at") {
		t.Errorf("problems %q", p)
	}
	if again := h.move(); !again.Signer().Cert.Equal(second) {
		t.Error("it does not start with the intermediate that it has")
	}
}

// In a rotation each replica gets an intermediate below the new root when that signs. One that was
// away gets it later, and signs below the old root until then.
func TestReplicaRotation(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		f := newFleet(t)
		h := f.another(f.token())
		two := h.move()
		old := two.Signer().Root
		if _, err := two.Rotate(t.Context(), RotateRequest{}); err == nil {
			t.Error("a rotation begins where the root's key is not")
		}
		waits := Dependent{"w", RootID(old), noon.Add(time.Hour)}
		f.first.fact(waits)
		h.fact(waits)
		listen := f.first.config.Address
		if away {
			f.stop()
		}
		if _, err := f.m.Rotate(t.Context(), RotateRequest{}); err != nil {
			t.Fatal(err)
		}
		f.pass(time.Second, h, two)
		if away {
			if p := show(t, two).Problems; !two.Signer().Root.Equal(old) || !two.own.late() || len(p) == 0 {
				t.Errorf("while nobody answers: problems %q", p)
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				t.Fatal(err)
			}
			serveReplicas(t, f.m, listener)
			two = h.move()
			f.pass(time.Second, h, two)
		}
		if two.Signer().Root.Equal(old) || !two.Signer().Root.Equal(f.m.Signer().Root) {
			t.Errorf("it signs below another root than the first: %q", show(t, two).Problems)
		}
		if err := believes(t, two.Signer(), h.config.Now(), old); err != nil {
			t.Errorf("who knows the old root alone: %v", err)
		}
	}
}

// Who writes to the store does not lead a new replica into another mesh: the token names the root.
func TestReplicaMisled(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t), newFleet(t)
	h := f.another(f.token())
	h.config.Records = other.first.records
	m, err := newManager(h.config)
	must(t, err)
	if err := m.own.start(t.Context(), noon); err == nil || !strings.Contains(err.Error(), "the token names root") {
		t.Errorf("got %v", err)
	}
}

// Replica tokens need a shared store, the root's key, and an authority that is not plugged in.
func TestCreateReplicaToken(t *testing.T) {
	t.Parallel()
	alone := newHouse(t)
	_, _, plugged := plug(t)
	f := newFleet(t)
	two := f.another(f.token()).move()
	for want, m := range map[string]*Manager{"on this machine alone": alone.move(), "is plugged in": plugged,
		"make it on the replica that has the root's key": two} {
		if _, _, err := m.CreateReplicaToken(time.Hour, "op"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A text that is no replica token is refused.
func TestParseReplicaToken(t *testing.T) {
	t.Parallel()
	good, _ := newReplicaToken("sha256:ab", "[::1]:15012")
	if root, address, err := parseReplicaToken(good); err != nil || root != "sha256:ab" || address != "[::1]:15012" {
		t.Errorf("got %s, %s, %v", root, address, err)
	}
	for _, text := range []string{"", "x", "ashore-join.a.b@c@d", good[:30], good + "@"} {
		if _, _, err := parseReplicaToken(text); err == nil || text != "" && strings.Contains(err.Error(), text+"@") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
