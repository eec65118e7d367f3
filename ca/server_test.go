package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// A machine joins by a token and renews by its certificate; the chain comes as Istio's agents read
// it.
func TestJoinAndRenew(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil).bounded(time.Hour)
	l.serve()
	first, chain, err := l.ask(client{token: l.token("shop/web"), name: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(chain) != 3 || chain[2] != l.bundle.text {
		t.Errorf("the chain has %d elements, want the leaf, the intermediate and the bundle", len(chain))
	}
	if id, err := spiffe.Of(first.Leaf); err != nil || id != web(t) || !first.Leaf.NotAfter.Equal(noon.Add(time.Hour)) {
		t.Errorf("got %v until %s, error %v", id, first.Leaf.NotAfter, err)
	}
	for action, words := range map[string]string{audit.TokenUse: "shop/web-1",
		audit.CertificateIssue: serialText(first.Leaf)} {
		events := l.events
		if err := l.audited(action, words); err != nil {
			t.Error(err)
		}
		l.events = events
	}
	l.pass(30 * time.Minute)
	second, _, err := l.ask(client{cert: first, name: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.ledger.Workload(t.Context(), "shop/web-1")
	if err != nil {
		t.Fatal(err)
	}
	if w.Key != keyHash(second.Leaf) || w.Previous != keyHash(first.Leaf) || len(w.Leaves) != 2 ||
		w.Group != "shop/web" {
		t.Errorf("the ledger has %+v", w)
	}
	if _, err := l.ledger.Holds(t.Context(), second.Leaf); err != nil {
		t.Error(err)
	}
}

// When the answer to a renewal is lost, the certificate from before renews again; once the new one
// was used, it does not.
func TestLostAnswerOfRenewal(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	first := l.join("shop/web", "web-1")
	lost, _, err := l.ask(client{cert: first})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := l.ask(client{cert: first})
	if err != nil {
		t.Fatalf("after a lost answer: %v", err)
	}
	if _, _, err := l.ask(client{cert: lost}); err == nil {
		t.Error("the certificate of the lost answer renews, and so does another one")
	}
	if _, _, err := l.ask(client{cert: second}); err != nil {
		t.Fatal(err)
	}
	_, _, err = l.ask(client{cert: first})
	if err := wantRefused(err, codes.Unauthenticated, "has a copy of the identity of shop/web-1"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.CertificateRefuse, reasonReplaced); err != nil {
		t.Error(err)
	}
}

// Every bad proof is refused in words that tell nothing, and the audit log says what it was.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const webID = "spiffe://cluster.local/ns/shop/sa/web"
	hour := func(l *lab, s *Signer, uri string, change func(*x509.Certificate)) *tls.Certificate {
		return l.certificate(s, uri, noon.Add(-time.Hour), noon.Add(time.Hour), change)
	}
	for name, tc := range map[string]struct {
		client func(l *lab) client
		code   codes.Code
		public string
		action string
		cause  string
	}{
		"nobody":         {func(*lab) client { return client{} }, codes.Unauthenticated, publicNobody, audit.CertificateRefuse, "no proof"},
		"another bearer": {func(*lab) client { return client{token: "secret"} }, codes.Unauthenticated, publicNobody, audit.CertificateRefuse, "no proof"},
		"token malformed": {func(l *lab) client { return client{token: l.token("shop/web")[:40], name: "a"} },
			codes.PermissionDenied, publicToken, audit.TokenRefuse, "token malformed"},
		"token tampered": {func(l *lab) client {
			s := []byte(l.token("shop/web"))
			s[len(s)-5] ^= 1
			if s[len(s)-5] == '^' || s[len(s)-5] == '`' || s[len(s)-5] == '.' || s[len(s)-5] == ',' {
				s[len(s)-5] = 'A'
			}
			return client{token: string(s), name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "token "},
		"token unknown": {func(l *lab) client {
			other := newLab(l.t, nil)
			return client{token: other.token("shop/web"), name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "token unknown"},
		"token expired": {func(l *lab) client {
			s := l.token("shop/web")
			l.pass(time.Hour)
			return client{token: s, name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "token expired"},
		"token revoked": {func(l *lab) client {
			s := l.token("shop/web")
			id, _, err := parseToken(s)
			if err == nil {
				err = l.ledger.RevokeToken(l.t.Context(), id, "tester")
			}
			if err != nil {
				l.t.Error(err)
			}
			return client{token: s, name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "it was revoked"},
		"token used by another key": {func(l *lab) client {
			s := l.token("shop/web")
			if _, _, err := l.ask(client{token: s, name: "a"}); err != nil {
				l.t.Error(err)
			}
			return client{token: s, name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "was used by shop/a"},
		"token used for another workload": {func(l *lab) client {
			s, key := l.token("shop/web"), NewKey()
			if _, _, err := l.ask(client{token: s, name: "a", key: key}); err != nil {
				l.t.Error(err)
			}
			return client{token: s, name: "b", key: key}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "and comes for shop/b"},
		"token of another group": {func(l *lab) client {
			return client{token: l.token("shop/web"), name: "a", more: map[string]string{"Group": "shop/api"}}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "is of group \"shop/web\", and comes for \"shop/api\""},
		"token and a group that is not there": {func(l *lab) client {
			return client{token: l.token("shop/web"), name: "a", more: map[string]string{"Group": "shop/nobody"}}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "another group"},
		"token of a group that is gone": {func(l *lab) client {
			s := l.token("shop/web")
			l.ledger.config.Groups = func(context.Context, string) (string, string, error) { return "", "", ErrNoGroup }
			return client{token: s, name: "a"}
		}, codes.FailedPrecondition, "WorkloadGroup", audit.TokenRefuse, "no group"},
		"token and no name": {func(l *lab) client { return client{token: l.token("shop/web")} }, codes.InvalidArgument, "metadata Workload", audit.TokenRefuse, "bad name"},
		"token and a path as name": {func(l *lab) client { return client{token: l.token("shop/web"), name: "../x"} },
			codes.InvalidArgument, "metadata Workload", audit.TokenRefuse, "bad name"},
		"token for a revoked workload": {func(l *lab) client {
			l.join("shop/web", "a")
			l.revoke("shop/a")
			return client{token: l.token("shop/web"), name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "shop/a was revoked"},
		"token for a revoked identity": {func(l *lab) client {
			text := l.token("shop/web")
			l.revoke(webID)
			if _, _, err := l.ledger.CreateToken(l.t.Context(), TokenRequest{Group: "shop/web"}); !errors.Is(err,
				ErrRevokedGroup) {
				l.t.Errorf("a token is made: %v", err)
			}
			return client{token: text, name: "a"}
		}, codes.PermissionDenied, publicToken, audit.TokenRefuse, "was revoked"},
		"certificate of a foreign root": {func(l *lab) client { return client{cert: hour(l, labSigner(l.t, testRoot(l.t)), webID, nil)} },
			codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "untrusted"},
		"certificate of the control plane": {func(l *lab) client { return client{cert: l.controlPlane()} },
			codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "not a workload"},
		"certificate of another trust domain": {func(l *lab) client { return client{cert: hour(l, l.signer, "spiffe://evil.local/ns/shop/sa/web", nil)} },
			codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "trust domain"},
		"certificate of a server too": {func(l *lab) client {
			return client{cert: hour(l, l.signer, webID,
				func(c *x509.Certificate) { c.DNSNames = []string{"ashored.internal"} })}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "not a workload"},
		"certificate not for clients": {func(l *lab) client {
			return client{cert: hour(l, l.signer, webID,
				func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "untrusted"},
		"certificate that begins after the grace": {func(l *lab) client {
			return client{cert: l.certificate(l.signer, webID, noon.Add(49*time.Hour), noon.Add(50*time.Hour), nil)}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "expired"},
		"certificate beyond its grace": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.pass(24*time.Hour + 48*time.Hour + time.Second)
			return client{cert: c}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "expired"},
		"certificate for another workload": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.join("shop/web", "b")
			return client{cert: c, name: "b"}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "other workload"},
		"certificate replaced by a new join": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.pass(15 * time.Second)
			l.join("shop/web", "a")
			return client{cert: c}
		}, codes.Unauthenticated, "another machine joined under the name shop/a at 2026-11-21T12:00:15Z from 127.0.0.1", audit.CertificateRefuse, "replaced"},
		"certificate of a revoked workload": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.revoke("shop/a")
			return client{cert: c}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "revoked"},
		"certificate of a revoked workload, expired": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.revoke("shop/a")
			l.pass(25 * time.Hour)
			return client{cert: c}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "revoked"},
		"certificate of a revoked identity": {func(l *lab) client {
			c := l.join("shop/web", "a")
			l.revoke(webID)
			return client{cert: c}
		}, codes.Unauthenticated, publicCertificate, audit.CertificateRefuse, "revoked"},
		"request for another signer": {func(l *lab) client {
			return client{cert: l.join("shop/web", "a"), more: map[string]string{"CertSigner": "x"}}
		}, codes.InvalidArgument, "CertSigner is not supported", audit.CertificateRefuse, "bad request"},
		"request for somebody else": {func(l *lab) client {
			return client{cert: l.join("shop/web", "a"), more: map[string]string{"ImpersonatedIdentity": webID}}
		}, codes.InvalidArgument, "ImpersonatedIdentity is not supported", audit.CertificateRefuse, "bad request"},
		"request that is none": {func(l *lab) client { return client{cert: l.join("shop/web", "a"), csr: []byte("hello")} },
			codes.InvalidArgument, "not PEM", audit.CertificateRefuse, "bad request"},
		"request that is large": {func(l *lab) client { return client{cert: l.join("shop/web", "a"), csr: make([]byte, 65<<10)} },
			codes.InvalidArgument, "at most 65536", audit.CertificateRefuse, "bad request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			c := tc.client(l)
			_, _, err := l.ask(c)
			if err := wantRefused(err, tc.code, tc.public); err != nil {
				t.Error(err)
			}
			if err := l.audited(tc.action, tc.cause); err != nil {
				t.Error(err)
			}
		})
	}
}

// A renewal is granted for a while after the end of a certificate, by the key that the ledger
// knows.
func TestRenewalInGrace(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	l.pass(24*time.Hour + 47*time.Hour)
	if _, _, err := l.ask(client{cert: c}); err != nil {
		t.Error(err)
	}
}

// The same key gets an answer for a token until it ends: a lost answer strands nobody.
func TestTokenIsIdempotent(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := client{token: l.token("shop/web"), name: "a", key: NewKey()}
	for range 3 {
		if _, _, err := l.ask(c); err != nil {
			t.Fatal(err)
		}
	}
	l.pass(time.Hour)
	_, _, err := l.ask(c)
	if err := wantRefused(err, codes.PermissionDenied, publicToken); err != nil {
		t.Error(err)
	}
}

// A line for another group than its token's is refused before the token is used: the right line
// works afterwards, with the same key, and one that names no group too.
func TestTokenOfAnotherGroupIsNotUsed(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := client{token: l.token("shop/web"), name: "a", key: NewKey()}
	for _, group := range []string{"shop/api", "shop/nobody", "web", "Shop/web"} {
		c.more = map[string]string{"Group": group}
		_, _, err := l.ask(c)
		if err := wantRefused(err, codes.PermissionDenied, publicToken); err != nil {
			t.Error(err)
		}
		if err := l.audited(audit.TokenRefuse, "token of another group"); err != nil {
			t.Error(err)
		}
	}
	for _, more := range []map[string]string{{"Group": "shop/web"}, nil} {
		c.more = more
		if _, _, err := l.ask(c); err != nil {
			t.Errorf("with %v: %v", more, err)
		}
	}
}

// A join that cannot be written down uses no token up.
func TestFailedJoinKeepsTheToken(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := client{token: l.token("shop/web"), name: "a", key: NewKey()}
	l.store.fail(func(w []record.Write) error {
		if w[0].Table == "token" {
			return errDisk
		}
		return nil
	})
	_, _, err := l.ask(c)
	if err := wantRefused(err, codes.Unavailable, "try again"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.TokenRefuse, errDisk.Error()); err != nil {
		t.Error(err)
	}
	l.store.fail(nil)
	if _, _, err := l.ask(client{token: c.token, name: "a"}); err != nil {
		t.Error(err)
	}
}

// Nothing leaves before it is written down; a wrong request uses no token up.
func TestNothingIsUsedUpByABadRequest(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := client{token: l.token("shop/web"), name: "a", csr: []byte("hello")}
	if _, _, err := l.ask(c); err == nil {
		t.Fatal("a bad request gets a certificate")
	}
	c.csr = nil
	if _, _, err := l.ask(c); err != nil {
		t.Error(err)
	}
}

// A token that came for a workload that is out is not used up: it serves when the workload is taken
// back in.
func TestNothingIsUsedUpByARevokedWorkload(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	l.join("shop/web", "a")
	l.revoke("shop/a")
	token := l.token("shop/web")
	if _, _, err := l.ask(client{token: token, name: "a"}); err == nil {
		t.Fatal("a revoked workload joins")
	}
	if err := l.ledger.Restore(t.Context(), RevokeRequest{Subject: "shop/a"}); err != nil {
		t.Fatal(err)
	}
	l.pass(15 * time.Second)
	if _, _, err := l.ask(client{token: token, name: "a"}); err != nil {
		t.Error(err)
	}
}

// While groups cannot be told the caller is to try again: his token is good, and stays so.
func TestGroupsThatCannotBeTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := client{token: l.token("shop/web"), name: "a"}
	known := l.ledger.config.Groups
	l.ledger.config.Groups = func(context.Context, string) (string, string, error) { return "", "", errDisk }
	_, _, err := l.ask(c)
	if err := wantRefused(err, codes.Unavailable, "try again"); err != nil {
		t.Error(err)
	}
	l.ledger.config.Groups = known
	if _, _, err := l.ask(c); err != nil {
		t.Error(err)
	}
}

// Of many machines with one token, one joins.
func TestOneMachineWins(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	token := l.token("shop/web")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		wg.Go(func() {
			_, _, err := l.ask(client{token: token, name: "a"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if err := wantRefused(err, codes.PermissionDenied, publicToken); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d machines joined with one token", won)
	}
}

// A revocation between the check and the certificate wins: the workload's record has changed.
func TestRevocationDuringRenewal(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	l.store.fail(func(w []record.Write) error {
		if w[0].Table == "workload" {
			l.store.fail(nil)
			l.revoke("shop/a")
		}
		return nil
	})
	_, _, err := l.ask(client{cert: c})
	if err := wantRefused(err, codes.Unauthenticated, publicCertificate); err != nil {
		t.Error(err)
	}
}

// A bearer token of another kind does not keep a good certificate from counting.
func TestEvidenceBesideOther(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	if _, _, err := l.ask(client{cert: l.join("shop/web", "a"), token: "eyJh.eyJh.x"}); err != nil {
		t.Error(err)
	}
	foreign := l.certificate(labSigner(t, testRoot(t)), "spiffe://cluster.local/ns/shop/sa/web", noon.Add(-time.Hour),
		noon.Add(time.Hour), nil)
	if _, _, err := l.ask(client{cert: foreign, token: l.token("shop/web"), name: "b"}); err != nil {
		t.Errorf("a machine that was of another mesh cannot join: %v", err)
	}
}

// A mesh that got a new name renews what has the old one.
func TestTrustDomainAlias(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	old := l.certificateFor(c.PrivateKey.(keyer), "spiffe://old.local/ns/shop/sa/web")
	got, _, err := l.ask(client{cert: old})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := spiffe.Of(got.Leaf); err != nil || id != web(t) {
		t.Errorf("got %v, error %v", id, err)
	}
}

// What a caller gets never holds what only the operator may know.
func TestRefusalsTellNothing(t *testing.T) {
	t.Parallel()
	for _, public := range []string{publicToken, publicCertificate, publicJWT, publicNobody} {
		for _, word := range []string{"shop", "key ", "workload "} {
			if strings.Contains(public, word) {
				t.Errorf("%q holds %q", public, word)
			}
		}
	}
}

// A replica whose root is not trusted any more issues nothing: nobody would believe it. The caller
// may try another one.
func TestNothingBelowARetiredRoot(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	token := l.token("shop/web")
	l.bundle = NewBundle(testRoot(t).Cert)
	_, _, err := l.ask(client{token: token, name: "a"})
	if err := wantRefused(err, codes.Unavailable, "cannot sign now"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.TokenRefuse, "not trusted any more"); err != nil {
		t.Error(err)
	}
}
