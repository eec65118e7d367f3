package agent

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// testToken has the form of a join token.
const testToken = "ashore-join.abcdefghij.c2VjcmV0"

// mesh is a root, an intermediate that signs, and what goes wrong.
type mesh struct {
	trustDomain string
	root        *ca.Signer
	signer      *ca.Signer
}

func newMesh(t testing.TB, trustDomain string) *mesh {
	t.Helper()
	now := time.Now()
	key := ca.NewKey()
	root, err := ca.NewRoot("root of "+trustDomain, 100*24*time.Hour, key, now)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{trustDomain: trustDomain, root: root}
	m.signer = m.intermediate(t)
	return m
}

// intermediate makes another signer below the root.
func (m *mesh) intermediate(t testing.TB) *ca.Signer {
	t.Helper()
	now := time.Now()
	key := ca.NewKey()
	cert, err := m.root.NewIntermediate("intermediate", 30*24*time.Hour,
		key.Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ca.NewSigner(cert, key, nil, ca.NewBundle(m.root.Cert), now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// server is a certificate for a control plane; edit makes it another one.
func (m *mesh) server(t testing.TB, edit func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key := ca.NewKey()
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "spiffe", Host: m.trustDomain,
			Path: "/ashore/control-plane"}}, DNSNames: []string{"localhost"},
	}
	if edit != nil {
		edit(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, m.signer.Cert, key.Public(), m.signer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{PrivateKey: key, Certificate: [][]byte{der, m.signer.Cert.Raw, m.root.Cert.Raw}}
}

// issue is an identity's certificates as an authority answers them.
func (m *mesh) issue(t testing.TB, id spiffe.ID, csr []byte, life time.Duration) []string {
	t.Helper()
	r, err := ca.ParseRequest(csr)
	if err != nil {
		t.Error(err)
		return nil
	}
	leaf, err := ca.Issue(m.signer, ca.Grant{ID: id, Key: r.Key, Validity: life}, time.Now())
	if err != nil {
		t.Error(err)
		return nil
	}
	return []string{string(ca.EncodeCertificates(leaf)), string(ca.EncodeCertificates(m.signer.Cert)),
		string(ca.EncodeCertificates(m.root.Cert))}
}

// identity is one without a control plane.
func (m *mesh) identity(t testing.TB, id spiffe.ID, life time.Duration) *Identity {
	t.Helper()
	key := ca.NewKey()
	out, err := parseAnswer(key, m.issue(t, id, must(newRequest(key, "")), life))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fakePlane is a control plane that gives certificates over real TLS: for one token once and for
// its key again, and for the key that it bound last.
type fakePlane struct {
	securityv1.UnimplementedIstioCertificateServiceServer

	t    testing.TB
	mesh *mesh
	addr string

	mu       sync.Mutex
	id       spiffe.ID                        // guarded by mu: of who joins
	life     time.Duration                    // guarded by mu
	anyToken bool                             // guarded by mu: it gives a certificate for whatever token
	bound    *string                          // guarded by mu: the key that took the token
	last     string                           // guarded by mu: the key that was bound last
	asked    []asked                          // guarded by mu
	lose     int                              // guarded by mu: answers that get lost
	refuse   error                            // guarded by mu: every answer
	change   func([]string) []string          // guarded by mu: of the answer
	present  func() (*tls.Certificate, error) // guarded by mu
}

// asked is one request.
type asked struct {
	token, workload, group string
	key                    string
	peer                   []*x509.Certificate
}

// startPlane serves on a free port of address until the test ends.
func startPlane(t testing.TB, m *mesh, address string, more ...func(*grpc.Server)) *fakePlane {
	t.Helper()
	p := &fakePlane{t: t, mesh: m, id: spiffe.ID{TrustDomain: m.trustDomain, Namespace: "shop", ServiceAccount: "web"},
		life: time.Hour}
	cert := m.server(t, nil)
	p.present = func() (*tls.Certificate, error) { return cert, nil }
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.present()
		}}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(cfg)))
	securityv1.RegisterIstioCertificateServiceServer(g, p)
	for _, register := range more {
		register(g)
	}
	serveUntilEnd(t, g, l)
	return p
}

// serveUntilEnd has a server answer until the test ends.
func serveUntilEnd(t testing.TB, g *grpc.Server, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // a test may end before it began
			t.Error(err)
		}
	})
}

// set changes how it behaves.
func (p *fakePlane) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// requests are those that came.
func (p *fakePlane) requests() []asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]asked(nil), p.asked...)
}

func (p *fakePlane) CreateCertificate(ctx context.Context,
	r *securityv1.IstioCertificateRequest) (*securityv1.IstioCertificateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	req, err := ca.ParseRequest([]byte(r.GetCsr()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	a := asked{key: req.KeyHash, workload: r.GetMetadata().GetFields()["Workload"].GetStringValue()}
	a.group = r.GetMetadata().GetFields()["Group"].GetStringValue()
	md, _ := metadata.FromIncomingContext(ctx)
	a.token = strings.TrimPrefix(strings.Join(md.Get("authorization"), ","), "Bearer ")
	if pr, ok := peer.FromContext(ctx); ok {
		a.peer = pr.AuthInfo.(credentials.TLSInfo).State.PeerCertificates
	}
	p.asked = append(p.asked, a)
	if p.refuse != nil {
		return nil, p.refuse
	}
	switch {
	case p.anyToken:
	case a.token != "" && (a.token != testToken || p.bound != nil && *p.bound != a.key):
		return nil, status.Error(codes.PermissionDenied,
			"the join token is not accepted: it may be used, expired, revoked, mistyped or for another group; make a new "+
				"one on the control plane: ashorectl join-token create --group NAMESPACE/NAME")
	case a.token != "":
		p.bound = &a.key
	case len(a.peer) == 0:
		return nil, status.Error(codes.Unauthenticated, "who asks?")
	}
	p.last = a.key
	if p.lose > 0 {
		p.lose--
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	chain := p.mesh.issue(p.t, p.id, []byte(r.GetCsr()), p.life)
	if p.change != nil {
		chain = p.change(chain)
	}
	return &securityv1.IstioCertificateResponse{CertChain: chain}, nil
}

// A refusal has one remedy: that of the control plane, or else the agent's.
func TestRefusalRemedy(t *testing.T) {
	t.Parallel()
	const attestors = "; the setting attestors of ashored has to name the issuer or the cluster of the token in /token, " +
		"and the token needs an audience that it accepts, such as istio-ca; \"ashorectl audit tail\" on the control plane " +
		"says why it is refused"
	unknown := (&ca.UnknownClusterError{Cluster: "north", Known: []string{"east", "west"}}).Error()
	for _, tc := range []struct{ tokenFile, answer, want string }{
		{"/token", "no", "no" + attestors},
		{"/token", unknown, unknown},
		{"", "no", `no; a new line is made by "ashorectl join-token create"`},
		{"", "ashorectl join-token create makes one", "ashorectl join-token create makes one"},
	} {
		err := (&authority{tokenFile: tc.tokenFile}).refusal("a:1", status.Error(codes.Unauthenticated, tc.answer))
		if want := "control plane a:1 refuses: " + tc.want; err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
}

// keyHash is how a request names a key.
func keyHash(key crypto.Signer) string {
	sum := sha256.Sum256(must(x509.MarshalPKIXPublicKey(key.Public())))
	return hex.EncodeToString(sum[:])
}

// freeAddress is one that nothing listens at.
func freeAddress(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
