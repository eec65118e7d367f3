package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
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

// another is the house of one more replica, which shares the records, with a first intermediate.
func (f *fleet) another() *house {
	f.t.Helper()
	h := newHouse(f.t)
	h.records = f.first.records
	h.config.Records, h.config.Address = f.first.records, "127.0.13.4:1"
	h.config.Replicas = func() []admin.Replica { return []admin.Replica{{Name: "one", Address: f.first.config.Address}} }
	text, err := f.m.CreateIntermediate("op")
	must(f.t, err)
	must(f.t, os.MkdirAll(h.config.Dir, 0o700))
	must(f.t, os.WriteFile(h.at(intermediateFile), text, 0o600))
	return h
}

// pass lets time go by for replicas, and has them look.
func (f *fleet) pass(d time.Duration, h *house, two *Manager) {
	f.first.later(f.m, d)
	h.later(two, d)
}

// A new replica starts with the intermediate that an operator made for it, and gets another one for
// a key of its own at once.
func TestReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.another()
	two := h.move()
	given := two.Signer().Cert
	if two.Bundle().ID != f.m.Bundle().ID || given.NotAfter.Sub(noon) != firstLife {
		t.Errorf("it trusts %s, and signs until %s", two.Bundle().ID, given.NotAfter)
	}
	if err := believes(t, two.Signer(), noon, f.m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
	h.later(two, time.Second)
	own := two.Signer().Cert
	if sameKey(own.PublicKey, given.PublicKey) || own.NotAfter.Sub(noon) != intermediateLife {
		t.Errorf("it signs with the key that it was given, until %s: %q", own.NotAfter, show(t, two).Problems)
	}
	if got := f.first.audited(audit.ReplicaIssue); len(got) != 2 || !strings.Contains(got[0], "op") {
		t.Errorf("audited is %q", got)
	}
	if again := h.move(); !again.Signer().Cert.Equal(own) {
		t.Error("after a restart it has another intermediate")
	}
	if s := show(t, two); len(s.Replicas) != 1 || s.Replicas[0].Name != "one" || len(s.Problems) != 0 {
		t.Errorf("shown are %+v, %q", s.Replicas, s.Problems)
	}
}

// A replica without a valid intermediate does not start, and says what to do.
func TestReplicaRefused(t *testing.T) {
	t.Parallel()
	const want = "put what \"ashorectl ca intermediate\" prints on the replica that has the key into intermediate-key.pem"
	for name, damage := range map[string]func(*fleet, *house){
		"none":    func(_ *fleet, h *house) { must(t, os.Remove(h.at(intermediateFile))) },
		"not one": func(_ *fleet, h *house) { must(t, os.WriteFile(h.at(intermediateFile), []byte("x"), 0o600)) },
		"expired": func(_ *fleet, h *house) { h.later(nil, firstLife) },
		"of another mesh": func(_ *fleet, h *house) {
			replaceFile(t, h.at(intermediateFile), mustRead(t, newFleet(t).another().at(intermediateFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			h := f.another()
			damage(f, h)
			if _, err := NewManager(t.Context(), h.config); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
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

// Only a replica gets an intermediate from another one.
func TestIntermediateIsForReplicas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	root := f.m.Signer().Root
	call := func(cert *tls.Certificate) error {
		c := controlPlaneTLS(NewBundle(root), "cluster.local", f.first.config.Now())
		if cert != nil {
			c.Certificates = []tls.Certificate{*cert}
		}
		csr := encodeRequest(t, NewKey(), x509.CertificateRequest{})
		got, err := requestIntermediate(t.Context(), f.first.config.Address, c, string(csr))
		if err == nil && (!got.IsCA || !got.MaxPathLenZero || got.CheckSignatureFrom(root) != nil) {
			t.Errorf("it is %+v", got)
		}
		return err
	}
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
		cert *tls.Certificate
		want string
	}{
		"nobody":            {nil, "is not accepted"},
		"a workload":        {l.certificate(f.m.Signer(), "spiffe://cluster.local/ns/a/sa/b", noon, noon.Add(time.Hour), nil), "is not accepted"},
		"of a foreign root": {l.certificate(labSigner(t, testRoot(t)), ControlPlaneID("cluster.local").String(), noon, noon.Add(time.Hour), nil), "is not accepted"},
		"a replica":         {server, ""},
	} {
		if err := call(tc.cert); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
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
	h := f.another()
	two := h.move()
	h.later(two, time.Second)
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
		h := f.another()
		two := h.move()
		f.pass(time.Second, h, two)
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

// Intermediates for others need a shared store, the root's key, and an authority that is not plugged
// in.
func TestCreateIntermediate(t *testing.T) {
	t.Parallel()
	alone := newHouse(t)
	_, _, plugged := plug(t)
	f := newFleet(t)
	two := f.another().move()
	for want, m := range map[string]*Manager{"on this machine alone": alone.move(), "is plugged in": plugged,
		"make it on the replica that has the root's key": two} {
		if _, err := m.CreateIntermediate("op"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
