package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// chainOf is what a client with a certificate shows.
func chainOf(t testing.TB, c *tls.Certificate) []*x509.Certificate {
	t.Helper()
	var out []*x509.Certificate
	for _, der := range c.Certificate {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// A peer counts while its chain leads to a root that is trusted now, and while its certificate
// lasts.
func TestVerifyPeer(t *testing.T) {
	t.Parallel()
	const webID = "spiffe://cluster.local/ns/shop/sa/web"
	l := newLab(t, nil)
	hour := func(s *Signer) *tls.Certificate { return l.certificate(s, webID, noon, noon.Add(time.Hour), nil) }
	own, second := hour(l.signer), hour(labSigner(t, l.root))
	fresh := testRoot(t)
	foreign := hour(labSigner(t, fresh))
	unread := l.certificate(labSigner(t, fresh), "spiffe://evil.local/ns/shop/sa/web", noon, noon.Add(time.Hour), nil)
	p, err := l.peers.Verify(chainOf(t, own), noon)
	if err != nil || p.ID != web(t) || p.Fingerprint != Fingerprint(own.Leaf) || !p.Leaf.Equal(own.Leaf) {
		t.Fatalf("got %+v, error %v", p, err)
	}
	for name, tc := range map[string]struct {
		chain []*x509.Certificate
		at    time.Duration
		want  string
	}{
		"own signer":            {chainOf(t, own), 0, ""},
		"another replica":       {chainOf(t, second), 0, ""},
		"another left out":      {chainOf(t, second)[:1], 0, "untrusted"},
		"foreign":               {chainOf(t, foreign), 0, "untrusted"},
		"foreign, names unread": {chainOf(t, unread), 0, "untrusted"},
		"foreign below ours":    {append(chainOf(t, foreign), l.signer.Cert, l.root.Cert), 0, "untrusted"},
		"at its end":            {chainOf(t, own), time.Hour, ""},
		"ended":                 {chainOf(t, own), time.Hour + time.Second, "expired"},
		"not yet":               {chainOf(t, own), -time.Hour, "expired"},
		"nothing":               {nil, 0, "no certificate"},
		"the authority itself":  {[]*x509.Certificate{l.signer.Cert}, 0, "not a workload"},
		"certified anew":        {append(chainOf(t, own), l.root.Cert, l.root.Cert), 0, ""},
		"many of one name":      {append(chainOf(t, foreign), l.root.Cert, l.root.Cert, l.root.Cert), 0, "long chain"},
		"a long chain":          {append(chainOf(t, own), make([]*x509.Certificate, maxChain)...), 0, "long chain"},
	} {
		_, err := l.peers.Verify(tc.chain, noon.Add(tc.at))
		if r, ok := errors.AsType[*Refusal](err); (tc.want != "" || err != nil) && (!ok || r.Reason != tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	l.bundle = NewBundle(fresh.Cert)
	if _, err := l.peers.Verify(chainOf(t, own), noon); err == nil {
		t.Error("what our own signer signed counts although its root is not trusted any more")
	}
	if _, err := l.peers.Verify(chainOf(t, foreign), noon); err != nil {
		t.Errorf("the new root is not trusted: %v", err)
	}
}

// Each connection shows its certificate, one that comes again too; one without a certificate is
// nobody.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	end := later(time.Now(), noon).Add(time.Hour) // a session would not be resumed after it, by the real clock
	own := l.certificate(l.signer, web(t).String(), noon, end, nil)
	cert := l.certificate(l.signer, "spiffe://cluster.local/ashore/control-plane", noon, end, nil)
	server := ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	cache := tls.NewLRUClientSessionCache(4)
	for i, c := range []*tls.Config{{Certificates: []tls.Certificate{*own}}, {Certificates: []tls.Certificate{*own}},
		{}, {MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}}} {
		c.InsecureSkipVerify, c.ClientSessionCache, c.ServerName = true, cache, "x"
		state, err := handshake(t, server, c)
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.peers.Verify(state.PeerCertificates, noon)
		if nobody := len(c.Certificates) == 0; nobody != (err != nil) || !nobody && p.ID != web(t) || state.DidResume {
			t.Errorf("connection %d: got %+v, resumed %v, error %v", i, p, state.DidResume, err)
		}
	}
	if _, err := handshake(t, server, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true}); err == nil || !strings.Contains(err.Error(), "version") { //nolint:gosec // that is what is tested
		t.Errorf("TLS 1.1: got %v", err)
	}
}

// handshake is a connection as its server sees it, and one byte, so that a client could have got a
// ticket.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.13.3:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing comes any more
	done := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", listener.Addr().String(), client)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close() //nolint:errcheck // all was read
		}
		done <- err
	}()
	raw, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Server(raw, server)
	defer c.Close() //nolint:errcheck // all was written
	if _, err := c.Write([]byte{1}); err != nil {
		<-done
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), <-done
}

// A revoked identity is out under every name of the mesh, and a certificate under every identity.
func TestRevokedUnderEveryTrustDomain(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	old := l.certificateFor(NewKey(), "spiffe://old.local/ns/shop/sa/web")
	p, err := l.peers.Verify(chainOf(t, old), noon)
	if err != nil {
		t.Fatal(err)
	}
	l.revoke("spiffe://cluster.local/ns/shop/sa/web")
	for name, check := range map[string]func() error{
		"the connection": func() error { return l.peers.Revoked(p.ID, p.Fingerprint) },
		"a new one":      func() error { _, err := l.peers.Verify(chainOf(t, old), noon); return err },
	} {
		if r, ok := errors.AsType[*Refusal](check()); !ok || r.Reason != "revoked" {
			t.Errorf("%s: got %v", name, r)
		}
	}
	l.revoke("spiffe://other/ns/shop/sa/web")
	all := l.ledger.Revocations().Identities
	if want := []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://old.local/ns/shop/sa/web",
		"spiffe://other/ns/shop/sa/web"}; !slices.Equal(all, want) {
		t.Errorf("names %v, want %v", all, want)
	}
}
