package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// lab is an authority with all its parts over a store in memory, served over TLS, and a clock that
// tests move.
type lab struct {
	t       testing.TB
	store   *faultyStore
	root    *Signer
	signer  *Signer // below root
	bundle  *Bundle
	ledger  *Ledger
	peers   *PeerVerifier
	server  *Server
	address string

	mu     sync.Mutex
	time   time.Time
	events []audit.Event
	former []admin.Leaf // guarded by mu: of who was replaced
	text   string       // guarded by mu: that came with it
}

// bounded has certificates live so long, and peers use connections accordingly.
func (l *lab) bounded(validity time.Duration) *lab {
	l.server.config.Validity = validity
	l.ledger.outlive = BoundConnections(validity).outlive()
	return l
}

// newLab makes one. settings may be nil.
func newLab(t testing.TB, settings func(*ServerConfig)) *lab {
	t.Helper()
	l := &lab{t: t, store: &faultyStore{Store: record.NewMemory()}, time: noon, root: testRoot(t)}
	l.signer = labSigner(t, l.root)
	l.bundle = NewBundle(l.root.Cert)
	log := testlog.New(t)
	var err error
	l.ledger, err = NewLedger(t.Context(), LedgerConfig{
		Records: l.store, TrustDomain: "cluster.local", Aliases: []string{"old.local"}, Groups: labGroups, Grace: 48 * time.Hour, Audit: l.record, Log: log, Now: l.now,
		Replaced: l.oust,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.peers = NewPeerVerifier(func() *Bundle { return l.bundle }, l.ledger)
	c := ServerConfig{
		Signer: func() *Signer { return l.signer }, Bundle: func() *Bundle { return l.bundle }, Ledger: l.ledger, Audit: l.record, Log: log, Now: l.now,
		Peers: l.peers,
	}
	if settings != nil {
		settings(&c)
	}
	l.server = NewServer(c)
	return l
}

// labSigner is an intermediate below a root.
func labSigner(t testing.TB, root *Signer) *Signer {
	t.Helper()
	key := NewKey()
	cert, err := root.NewIntermediate("intermediate", 900*time.Hour,
		key.Public(), noon)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(cert, key, nil, NewBundle(root.Cert), noon)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// labGroups knows shop/web, of service account web, shop/api, of the default one, and one that
// makes no identity.
func labGroups(_ context.Context, group string) (namespace, account string, err error) {
	switch group {
	case "shop/web":
		return "shop", "web", nil
	case "shop/api":
		return "shop", "default", nil
	case "shop/bad":
		return "shop", "../x", nil
	}
	return "", "", ErrNoGroup
}

func (l *lab) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.time
}

func (l *lab) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time = l.time.Add(d)
}

func (l *lab) oust(former []admin.Leaf, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.former, l.text = append(l.former, former...), text
}

func (l *lab) record(e audit.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// audited says whether an event holds all these words, and forgets all events.
func (l *lab) audited(action, words string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.events = nil }()
	for _, e := range l.events {
		if e.Action == action && strings.Contains(fmt.Sprint(e), words) {
			return nil
		}
	}
	return fmt.Errorf("no event %s holds %q: %v", action, words, l.events)
}

func (l *lab) token(group string) string {
	l.t.Helper()
	text, _, err := l.ledger.CreateToken(l.t.Context(), TokenRequest{Group: group, By: "tester"})
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// serve listens for TLS until the test ends.
func (l *lab) serve() {
	l.t.Helper()
	cert := l.controlPlane()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate,
		error) {
		return cert, nil
	}))))
	l.server.Register(g)
	listener, err := net.Listen("tcp", "127.0.13.2:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.address = listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	l.t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			l.t.Error(err)
		}
	})
}

// controlPlane is a certificate of a control plane.
func (l *lab) controlPlane() *tls.Certificate {
	l.t.Helper()
	return l.certificate(l.signer, "spiffe://cluster.local/ashore/control-plane", noon.Add(-time.Hour),
		noon.Add(800*time.Hour), func(c *x509.Certificate) {
			c.DNSNames = []string{"localhost"}
		})
}

// keyer is a private key.
type keyer = crypto.Signer

// certificateFor is one of today for a key.
func (l *lab) certificateFor(key keyer, uri string) *tls.Certificate {
	l.t.Helper()
	return l.certificate(l.signer, uri, noon.Add(-time.Hour), noon.Add(time.Hour), nil, key)
}

func (l *lab) revoke(subject string) {
	l.t.Helper()
	if err := l.ledger.Revoke(l.t.Context(), RevokeRequest{Subject: subject, By: "tester",
		Reason: "stolen"}); err != nil {
		l.t.Error(err)
	}
}

// revocations are those of the ledger at this moment.
func (l *lab) revocations() *Revocations {
	l.t.Helper()
	if err := l.ledger.reconcile(l.t.Context()); err != nil {
		l.t.Error(err)
	}
	return l.ledger.Revocations()
}

// certificate is one that an authority signs, whatever its rules, for a new key unless one is
// given.
func (l *lab) certificate(s *Signer, uri string, begin, end time.Time, change func(*x509.Certificate),
	keys ...keyer) *tls.Certificate {
	l.t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		l.t.Fatal(err)
	}
	var key keyer = NewKey()
	if len(keys) > 0 {
		key = keys[0]
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77), URIs: []*url.URL{u}, NotBefore: begin, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.Cert, key.Public(), s.Key)
	if err != nil {
		l.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		l.t.Fatal(err)
	}
	out := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	for _, i := range s.Intermediates {
		out.Certificate = append(out.Certificate, i.Raw)
	}
	return out
}

// client is a machine that asks.
type client struct {
	token string
	cert  *tls.Certificate
	name  string
	// cluster is what it names its cluster; empty: nothing.
	cluster string
	key     crypto.Signer // nil: a new one each time
	more    map[string]string
	csr     []byte // nil: a good one
}

// ask sends one call over a connection of its own, and returns what it got as a certificate for the
// key.
func (l *lab) ask(c client) (*tls.Certificate, []string, error) {
	l.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // the server is not what is tested
	if c.cert != nil {
		config.Certificates = []tls.Certificate{*c.cert}
	}
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		l.t.Error(err)
		return nil, nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing more is sent
	ctx := context.Background()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	if c.cluster != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "clusterid", c.cluster)
	}
	if c.key == nil {
		c.key = NewKey()
	}
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, l.request(c))
	if err != nil {
		return nil, nil, err
	}
	out := &tls.Certificate{PrivateKey: c.key}
	for _, text := range answer.GetCertChain()[:len(answer.GetCertChain())-1] {
		certs, err := DecodeCertificates([]byte(text))
		if err != nil || len(certs) != 1 {
			l.t.Errorf("an element of the chain holds %d certificates, error %v", len(certs), err)
			return nil, nil, err
		}
		out.Certificate = append(out.Certificate, certs[0].Raw)
		if out.Leaf == nil {
			out.Leaf = certs[0]
		}
	}
	return out, answer.GetCertChain(), nil
}

func (l *lab) request(c client) *securityv1.IstioCertificateRequest {
	l.t.Helper()
	if c.csr == nil {
		c.csr = encodeRequest(l.t, c.key, x509.CertificateRequest{})
	}
	fields := map[string]*structpb.Value{}
	if c.name != "" {
		fields["Workload"] = structpb.NewStringValue(c.name)
	}
	for k, v := range c.more {
		fields[k] = structpb.NewStringValue(v)
	}
	return &securityv1.IstioCertificateRequest{Csr: string(c.csr),
		Metadata: &structpb.Struct{Fields: fields}}
}

// join asks with a fresh token, and must get a certificate.
func (l *lab) join(group, name string) *tls.Certificate {
	l.t.Helper()
	out, _, err := l.ask(client{token: l.token(group), name: name})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// wantRefused says that a call was refused by this code with these words.
func wantRefused(err error, code codes.Code, words string) error {
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), words) {
		return fmt.Errorf("got %v, want %s with %q", err, code, words)
	}
	return nil
}

// faultyStore is a store that fails on demand.
type faultyStore struct {
	record.Store

	mu     sync.Mutex
	before func([]record.Write) error // guarded by mu: called before each commit
	behind error                      // guarded by mu: why reads go by what was known last
}

// part has the store be out of touch with the others for a reason; nil: in touch.
func (s *faultyStore) part(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = why
}

// Behind implements record.Store.
func (s *faultyStore) Behind() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind
}

func (s *faultyStore) Commit(ctx context.Context, writes ...record.Write) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(writes); err != nil {
			return err
		}
	}
	return s.Store.Commit(ctx, writes...)
}

func (s *faultyStore) fail(before func([]record.Write) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

var errDisk = errors.New("no space left on device")

// Workload returns one by its "namespace/name". Errors: ErrNotFound.
func (l *Ledger) Workload(ctx context.Context, name string) (Workload, error) {
	w, version, err := l.workloads.get(ctx, name)
	if err == nil && version == "" {
		err = fmt.Errorf("workload %.200q: %w", name, ErrNotFound)
	}
	return w, err
}
