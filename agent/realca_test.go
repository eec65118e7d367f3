package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// authorityServer is the control plane's own certificate authority over TLS.
type authorityServer struct {
	addr    string
	manager *ca.Manager
	ledger  *ca.Ledger
	ahead   atomic.Int64 // how far its ledger's clock is ahead
}

// startAuthority serves until the test ends.
func startAuthority(t *testing.T, address string) *authorityServer {
	t.Helper()
	ctx := context.Background()
	a := &authorityServer{}
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
	s := ca.NewServer(ca.ServerConfig{Signer: a.manager.Signer, Bundle: a.manager.Bundle, Ledger: a.ledger,
		Now:   now,
		Peers: peers})
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	a.addr = l.Addr().String()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequestClientCert, GetCertificate: a.manager.ServerCertificate})))
	s.Register(g)
	serveUntilEnd(t, g, l)
	return a
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
