package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// authorityServer is the control plane's own certificate authority over TLS.
type authorityServer struct {
	addr    string
	manager *ca.Manager
	ledger  *ca.Ledger
	ahead   atomic.Int64 // how far its ledger's clock is ahead

	issuer  *ecdsa.PrivateKey // whose tokens of service accounts are accepted
	cluster atomic.Value      // the header clusterid of the last request: a string
}

// startAuthority serves until the test ends.
func startAuthority(t *testing.T, address string, edit ...func(*ca.ServerConfig)) *authorityServer {
	t.Helper()
	ctx := context.Background()
	a := &authorityServer{issuer: ca.NewKey()}
	now := func() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }
	records := record.NewMemory()
	var err error
	if a.manager, err = ca.NewManager(ctx, ca.ManagerConfig{Dir: t.TempDir(), TrustDomain: "cluster.local",
		Records: records}); err != nil {
		t.Fatal(err)
	}
	if a.ledger, err = ca.NewLedger(ctx, ca.LedgerConfig{Records: records, TrustDomain: "cluster.local", Grace: ca.DefaultGrace, Now: now,
		Groups: func(_ context.Context, group string) (string, string, error) {
			if group != "shop/web" {
				return "", "", ca.ErrNoGroup
			}
			return "shop", "web", nil
		}}); err != nil {
		t.Fatal(err)
	}
	peers := ca.NewPeerVerifier(a.manager.Bundle, a.ledger)
	c := ca.ServerConfig{Signer: a.manager.Signer, Bundle: a.manager.Bundle, Ledger: a.ledger,
		Now: now, JWT: a.attestor(t), Peers: peers}
	for _, f := range edit {
		f(&c)
	}
	s := ca.NewServer(c)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	a.addr = l.Addr().String()
	note := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		a.cluster.Store(strings.Join(md.Get("clusterid"), ","))
		return next(srv, stream)
	}
	g := grpc.NewServer(grpc.StreamInterceptor(note), grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequestClientCert, GetCertificate: a.manager.ServerCertificate})))
	s.Register(g)
	serveUntilEnd(t, g, l)
	return a
}

// attestor accepts tokens of the issuer once it has read its keys.
func (a *authorityServer) attestor(t *testing.T) *ca.JWTAttestor {
	t.Helper()
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &a.issuer.PublicKey, KeyID: "a"}}})
	file := filepath.Join(t.TempDir(), "keys.json")
	if err == nil {
		err = os.WriteFile(file, keys, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := ca.NewJWTAttestor(ca.JWTConfig{Issuers: []ca.Issuer{{Name: "https://cluster", Keys: file}}, Ledger: a.ledger,
		Log: testlog.New(t)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- out.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return out
}

// accountToken makes a token of a service account, as Kubernetes does.
func (a *authorityServer) accountToken(t *testing.T, namespace, account string) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: a.issuer},
		(&jose.SignerOptions{}).WithHeader("kid", "a"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(map[string]any{
		"iss": "https://cluster", "aud": "istio-ca", "exp": time.Now().Add(30 * 24 * time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": account}},
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// token makes one.
func (a *authorityServer) token(t *testing.T) string {
	t.Helper()
	text, _, err := a.ledger.CreateToken(t.Context(), ca.TokenRequest{Group: "shop/web", By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// machine is what a machine joins with.
func (a *authorityServer) machine(t *testing.T, name, token string) JoinConfig {
	t.Helper()
	s := Default()
	s.State, s.Workload.Name, s.XDS.Addresses = stateFolder(t), name, []string{a.addr}
	roots := a.manager.Bundle().Roots
	return JoinConfig{Settings: s, Group: "shop/web", Hash: ca.RootID(roots[0]), Token: token, Log: testlog.New(t)}
}

// With the control plane's own authority: a token lets one machine in and no other; its certificate
// is renewed with the former one, also for a while after that has ended, and not once it is
// revoked.
func TestRealAuthority(t *testing.T) {
	t.Parallel()
	a := startAuthority(t, "127.0.15.30:0")
	token := a.token(t)
	c := a.machine(t, "web-1", token)
	r, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Identity.ID != web() {
		t.Errorf("joined as %v", r.Identity.ID)
	}
	if _, err := Join(t.Context(), a.machine(t, "web-2", token)); err == nil ||
		!strings.Contains(err.Error(), "the join token is not accepted: it may be used") {
		t.Errorf("another machine with the same token: %v", err)
	}
	k, err := NewCertManager(CertManagerConfig{Dir: c.Settings.State, Addresses: []string{a.addr}, Name: "web-1",
		Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	for n, ahead := range []time.Duration{0, 0, 0, 3 * 24 * time.Hour} {
		a.ahead.Store(int64(ahead))
		before := k.Identity()
		err := k.renew(t.Context())
		if ahead > 0 { // it gives a certificate, and by this machine's clock that is not valid yet
			if err == nil || !strings.Contains(err.Error(), "by this machine's clock") {
				t.Errorf("renewal by a control plane of another time: %v", err)
			}
			continue
		}
		if err != nil || k.Identity().Serial() == before.Serial() || k.Identity().ID != web() {
			t.Fatalf("renewal %d: %v", n, err)
		}
	}
	a.ahead.Store(0)
	if err := a.ledger.Revoke(t.Context(), ca.RevokeRequest{Subject: "shop/web-1",
		By: "test"}); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := k.renew(t.Context()); !errors.As(err, &refused) ||
		strings.Count(err.Error(), "ashorectl join-token create") != 1 {
		t.Errorf("after its revocation: %v", err)
	}
}

// A workload in a Pod joins with the token of its service account and the roots of a file, without
// a group and without a hash. The token is read again for each renewal. When the certificate is no
// longer accepted, the token renews it.
func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	a := startAuthority(t, "127.0.15.31:0")
	dir := t.TempDir()
	token, roots := filepath.Join(dir, "token"), filepath.Join(dir, "root-cert.pem")
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, []byte(a.accountToken(t, "shop", "web")+"\n"))
	write(roots, a.manager.Bundle().PEM())
	c := a.machine(t, "web-6d4f", "")
	c.Group, c.Hash = "", ""
	c.Settings.Workload.Namespace, c.Settings.Workload.Cluster = "shop", "east"
	c.Settings.XDS.TokenFile, c.Settings.XDS.CAFile = token, roots
	r, err := Join(t.Context(), c)
	if err != nil || r.Identity.ID != web() || r.Settings.Workload.Namespace != "shop" || a.cluster.Swap("") != "east" {
		t.Fatalf("joined as %+v: %v", r, err)
	}
	write(token, []byte(a.accountToken(t, "shop", "web"))) // Kubernetes rotates it
	if again, err := Join(t.Context(), c); err != nil || !again.Already {
		t.Errorf("started again: %+v, %v", again, err)
	}
	saved, err := SavedSettings(c.Settings.State)
	if err != nil || saved.XDS.TokenFile != token || saved.Workload.Cluster != "east" || saved.Complete() != nil {
		t.Fatalf("settings to run with: %+v, %v", saved, err)
	}
	running := &Agent{settings: saved}
	if err := running.identify(testlog.New(t)); err != nil {
		t.Fatal(err)
	}
	k := running.certs
	if err := k.renew(t.Context()); err != nil || k.Identity().Serial() == r.Identity.Serial() || a.cluster.Swap("") != "east" {
		t.Fatalf("renewal: %v", err)
	}
	// The certificate has ended and may not be renewed any more. The token's answer comes from a
	// time that this machine has not reached.
	a.ahead.Store(int64(20 * 24 * time.Hour))
	if err := k.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "by this machine's clock") {
		t.Errorf("renewal with the token alone: %v", err)
	}
	write(token, []byte(a.accountToken(t, "shop", "web")+"x"))
	var refused *RefusedError
	if err := k.renew(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "the setting attestors of ashored") {
		t.Errorf("renewal with a bad token: %v", err)
	}
	write(token, []byte("ashore-join.a.b"))
	if err := k.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "has a one-time token") {
		t.Errorf("renewal with a one-time token: %v", err)
	}
	a.ahead.Store(0)
	write(token, []byte(a.accountToken(t, "bank", "web")))
	c.Settings.State = stateFolder(t)
	if _, err := Join(t.Context(), c); err == nil || !strings.Contains(err.Error(), "workload.namespace: \"shop\" is not") {
		t.Errorf("a token of another namespace: %v", err)
	}
	write(roots, ca.NewBundle(newMesh(t, "cluster.local").root.Cert).PEM())
	if _, err := Join(t.Context(), c); err == nil || !strings.Contains(err.Error(), "does not lead to a root") {
		t.Errorf("a control plane of another mesh: %v", err)
	}
}

// external signs requests outside of the control plane, below its root.
type external struct{ signer func() *ca.Signer }

func (e external) Sign(_ context.Context, request []byte, validity time.Duration) ([]byte, error) {
	r, err := ca.ParseRequest(request)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(e.signer(), ca.Grant{ID: web(), Key: r.Key, Validity: validity}, time.Now())
	if err != nil {
		return nil, err
	}
	return ca.EncodeCertificates(append([]*x509.Certificate{leaf}, e.signer().Intermediates...)...), nil
}

// Where a signer outside of the control plane signs, a machine joins and renews too: its requests then
// have its identity. The audit log has no refusal.
func TestExternalSigner(t *testing.T) {
	t.Parallel()
	a := startAuthority(t, "127.0.15.32:0", func(c *ca.ServerConfig) {
		c.External = external{c.Signer}
		c.Audit = func(e audit.Event) {
			if e.Action != audit.TokenUse && e.Action != audit.CertificateIssue {
				t.Errorf("in the audit log: %+v", e)
			}
		}
	})
	c := a.machine(t, "web-1", a.token(t))
	r, err := Join(t.Context(), c)
	if err != nil || r.Identity.ID != web() {
		t.Fatalf("joined as %+v, error %v", r, err)
	}
	k, err := NewCertManager(CertManagerConfig{Dir: c.Settings.State, Addresses: []string{a.addr}, Name: "web-1", Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.renew(t.Context()); err != nil || k.Identity().Serial() == r.Identity.Serial() {
		t.Errorf("renewal: %v", err)
	}
}
