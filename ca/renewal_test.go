package ca

import (
	"crypto/x509"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// retire takes the root of a lab out: another one signs, and is alone trusted.
func (l *lab) retire() (old *Signer) {
	l.t.Helper()
	old = l.signer
	l.root = testRoot(l.t)
	l.signer, l.bundle = labSigner(l.t, l.root), NewBundle(l.root.Cert)
	return old
}

// Who holds a certificate whose root was taken out renews with it, for the ledger has it; so do
// those in their grace, and those whose last answer was lost. For a stream it is no proof any more.
func TestRenewalBelowARetiredRoot(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"at once": time.Minute,
		"in its grace": 24*time.Hour + 47*time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			first := l.join("shop/web", "a")
			l.retire()
			l.pass(away)
			if _, err := l.peers.Verify(chainOf(t, first), noon.Add(time.Minute)); err == nil {
				t.Error("a retired root is believed of a peer")
			}
			if _, _, err := l.ask(client{cert: first}); err != nil { // and the answer is lost
				t.Fatal(err)
			}
			if err := l.audited(audit.CertificateIssue, "how:certificate"); err != nil {
				t.Error(err)
			}
			second, _, err := l.ask(client{cert: first})
			if err != nil {
				t.Fatalf("after a lost answer: %v", err)
			}
			if _, _, err := l.ask(client{cert: second}); err != nil {
				t.Fatal(err)
			}
			_, _, err = l.ask(client{cert: first})
			if err := wantRefused(err, codes.Unauthenticated, ""); err != nil {
				t.Errorf("a key that was replaced: %v", err)
			}
		})
	}
}

// A clock that was ahead while a certificate was issued, and is set back, leaves nobody out: the
// certificate before it renews, and so does the one that is not valid yet.
func TestRenewalAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"the former", "the latest", "one from a time beyond the grace"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			first := l.join("shop/web", "a")
			leap := 47 * time.Hour
			if with == "one from a time beyond the grace" {
				leap = 7 * 24 * time.Hour
				l.ledger.config.Grace = 8 * 24 * time.Hour
			}
			l.pass(leap)
			second, _, err := l.ask(client{cert: first})
			if err != nil {
				t.Fatal(err)
			}
			l.pass(-leap)
			l.ledger.config.Grace = 48 * time.Hour
			c := client{cert: second}
			if with == "the former" {
				c.cert = first
			}
			third, _, err := l.ask(c)
			if leap > l.ledger.config.Grace {
				if err := wantRefused(err, codes.Unauthenticated, publicCertificate); err != nil {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if third.Leaf.NotBefore.After(l.now()) {
				t.Errorf("the new certificate begins at %s", third.Leaf.NotBefore)
			}
		})
	}
}

// Below a retired root all else that makes a certificate good is asked for still, and that the
// ledger has this very one.
func TestRefusedBelowARetiredRoot(t *testing.T) {
	t.Parallel()
	const webID = "spiffe://cluster.local/ns/shop/sa/web"
	hour := func(uri string, change func(*x509.Certificate)) func(l *lab, old *Signer, c client) client {
		return func(l *lab, old *Signer, c client) client {
			return client{cert: l.certificate(old, uri, noon.Add(-time.Hour), noon.Add(time.Hour), change,
				c.cert.PrivateKey.(keyer))}
		}
	}
	for name, tc := range map[string]struct {
		change func(l *lab, old *Signer, c client) client
		cause  string
	}{
		"forged for the same key": {hour(webID, nil), "untrusted"},
		"forged for another key": {func(l *lab, old *Signer, _ client) client {
			return client{cert: l.certificate(old, webID, noon, noon.Add(time.Hour), nil)}
		}, "untrusted"},
		"forged for another identity": {hour("spiffe://cluster.local/ns/shop/sa/default", nil), "untrusted"},
		"of another trust domain":     {hour("spiffe://evil.local/ns/shop/sa/web", nil), "trust domain"},
		"with another name too":       {hour(webID, func(c *x509.Certificate) { c.DNSNames = []string{"a"} }), "not a workload"},
		"workload revoked":            {func(l *lab, _ *Signer, c client) client { l.revoke("shop/a"); return c }, "revoked"},
		"identity revoked":            {func(l *lab, _ *Signer, c client) client { l.revoke(webID); return c }, "revoked"},
		"beyond its grace":            {func(l *lab, _ *Signer, c client) client { l.pass(24*time.Hour + 49*time.Hour); return c }, "expired"},
		"replaced by a new join":      {func(l *lab, _ *Signer, c client) client { l.pass(15 * time.Second); l.join("shop/web", "a"); return c }, "another machine joined"},
		"for another workload":        {func(l *lab, _ *Signer, c client) client { c.name = "b"; return c }, "other workload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			c := client{cert: l.join("shop/web", "a")}
			old := l.retire()
			_, _, err := l.ask(tc.change(l, old, c))
			if err := wantRefused(err, codes.Unauthenticated, ""); err != nil {
				t.Error(err)
			}
			if err := l.audited(audit.CertificateRefuse, tc.cause); err != nil {
				t.Error(err)
			}
		})
	}
}
