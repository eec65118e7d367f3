package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func rsaKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func testRoot(t testing.TB) *Signer {
	t.Helper()
	s, err := NewRoot("root", 1000*time.Hour, NewKey(), noon)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// encodeRequest makes a request of a template, signed by key.
func encodeRequest(t testing.TB, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func web(t testing.TB) spiffe.ID {
	t.Helper()
	id, err := spiffe.New("cluster.local", "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Whatever a request asks for, its certificate names the authenticated identity and nothing else.
func TestIssueIgnoresWhatRequestsAskFor(t *testing.T) {
	t.Parallel()
	s := testRoot(t)
	greedy := x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "admin"},
		DNSNames:    []string{"ashored.internal"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/root/sa/admin"}},
		ExtraExtensions: []pkix.Extension{
			{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}, // a CA
		},
	}
	for _, key := range []crypto.Signer{NewKey(), rsaKey(t)} {
		r, err := ParseRequest(encodeRequest(t, key, greedy))
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := Issue(s, Grant{ID: web(t), Key: r.Key}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := spiffe.Of(leaf); err != nil || id != web(t) {
			t.Errorf("it names %v, error %v", id, err)
		}
		if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0 || leaf.Subject.String() != "" ||
			leaf.IsCA {
			t.Errorf("it says more: %v %v %q, CA %v", leaf.DNSNames, leaf.IPAddresses, leaf.Subject, leaf.IsCA)
		}
		if got := leaf.NotAfter.Sub(noon); got != 24*time.Hour {
			t.Errorf("it lives for %s", got)
		}
		roots := x509.NewCertPool()
		roots.AddCert(s.Root)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: noon,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}); err != nil {
			t.Errorf("a peer says: %v", err)
		}
	}
}

// A certificate lives as long as is set, and never longer than its authority.
func TestValidity(t *testing.T) {
	t.Parallel()
	s, key := testRoot(t), NewKey()
	for name, tc := range map[string]struct {
		set  time.Duration
		at   time.Time
		want time.Duration
		err  string
	}{
		"default":         {0, noon, 24 * time.Hour, ""},
		"set":             {90 * time.Minute, noon, 90 * time.Minute, ""},
		"long":            {48 * time.Hour, noon, 48 * time.Hour, ""},
		"authority ends":  {0, noon.Add(999 * time.Hour), time.Hour, ""},
		"authority ended": {0, noon.Add(1000 * time.Hour), 0, "the certificate of the authority expired at 2027-01-02T04:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaf, err := Issue(s, Grant{ID: web(t), Key: key.Public(), Validity: tc.set}, tc.at)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := leaf.NotAfter.Sub(tc.at); got != tc.want {
				t.Errorf("it lives for %s, want %s", got, tc.want)
			}
			if leaf.NotBefore.Before(s.Cert.NotBefore) || leaf.NotBefore.After(tc.at) {
				t.Errorf("it begins at %s", leaf.NotBefore)
			}
		})
	}
}

// Nobody without an identity gets a certificate, and neither does one whose identity is not well
// formed.
func TestIssueNeedsAnIdentity(t *testing.T) {
	t.Parallel()
	s, key := testRoot(t), NewKey().Public()
	for _, id := range []spiffe.ID{{}, {TrustDomain: "td", Namespace: "a/sa/b", ServiceAccount: "c"},
		{TrustDomain: "td", Namespace: "..", ServiceAccount: "c"}} {
		if _, err := Issue(s, Grant{ID: id, Key: key}, noon); !errors.Is(err, ErrSigner) {
			t.Errorf("%#v: got %v", id, err)
		}
	}
}

// What is signed is compared with what was meant.
func TestCheckFindsDifferences(t *testing.T) {
	t.Parallel()
	s, key := testRoot(t), NewKey()
	g := Grant{ID: web(t), Key: key.Public()}
	leaf, err := Issue(s, g, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(leaf, meant *x509.Certificate, g *Grant){
		"identity": func(_, _ *x509.Certificate, g *Grant) { g.ID.ServiceAccount = "api" },
		"key":      func(_, _ *x509.Certificate, g *Grant) { g.Key = NewKey().Public() },
		"names":    func(leaf, _ *x509.Certificate, _ *Grant) { leaf.DNSNames = []string{"a"} },
		"CA":       func(leaf, _ *x509.Certificate, _ *Grant) { leaf.IsCA = true },
		"usage":    func(leaf, _ *x509.Certificate, _ *Grant) { leaf.KeyUsage |= x509.KeyUsageCertSign },
		"end":      func(leaf, _ *x509.Certificate, _ *Grant) { leaf.NotAfter = leaf.NotAfter.Add(time.Hour) },
		"issuer":   func(leaf, _ *x509.Certificate, _ *Grant) { leaf.RawIssuer = nil },
		"critical": func(leaf, _ *x509.Certificate, _ *Grant) {
			for i := range leaf.Extensions {
				leaf.Extensions[i].Critical = false
			}
		},
	} {
		signed, meant, grant := *leaf, *leaf, g
		signed.Extensions = append([]pkix.Extension{}, leaf.Extensions...)
		change(&signed, &meant, &grant)
		if err := s.check(&signed, &meant, grant); err == nil {
			t.Errorf("%s: no difference is found", name)
		}
	}
	if err := s.check(leaf, leaf, g); err != nil {
		t.Errorf("without a difference: %v", err)
	}
}

// A request that nobody should sign is refused with the reason.
func TestParseRequest(t *testing.T) {
	t.Parallel()
	good := encodeRequest(t, NewKey(), x509.CertificateRequest{})
	curve, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	forged := append([]byte{}, block.Bytes...)
	forged[len(forged)-1] ^= 1
	for name, tc := range map[string]struct {
		text []byte
		want string
	}{
		"empty":      {nil, "it is not PEM"},
		"no PEM":     {[]byte("hello"), "it is not PEM"},
		"kind":       {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}), `its PEM block is a "CERTIFICATE"`},
		"two":        {append(append([]byte{}, good...), good...), "several PEM blocks"},
		"large":      {make([]byte, maxRequest+1), "at most 16384 are allowed"},
		"no request": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1, 2}}), "bad certificate signing request"},
		"signature":  {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: forged}), "its signature"},
		"curve":      {encodeRequest(t, curve, x509.CertificateRequest{}), "want P-256 or P-384"},
		"ed25519":    {encodeRequest(t, ed, x509.CertificateRequest{}), "want ECDSA or RSA"},
		"short":      {encodeRequest(t, short, x509.CertificateRequest{}), "has 1024 bits, want 2048 to 4096"},
	} {
		if _, err := ParseRequest(tc.text); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// An authority whose parts do not fit is refused with the reason.
func TestNewSigner(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	key := NewKey()
	below, err := root.NewIntermediate("below", time.Hour, key.Public(), noon)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := Issue(root, Grant{ID: web(t), Key: key.Public()}, noon)
	if err != nil {
		t.Fatal(err)
	}
	stranger := testRoot(t)
	for name, tc := range map[string]struct {
		cert *x509.Certificate
		key  crypto.Signer
		root *x509.Certificate
		at   time.Time
		want string
	}{
		"good":     {below, key, root.Root, noon, ""},
		"key":      {below, NewKey(), root.Root, noon, "the key is not that of the authority's certificate"},
		"leaf":     {leaf, key, root.Root, noon, "is not the certificate of a CA"},
		"root":     {below, key, leaf, noon, "is not valid below any root"},
		"stranger": {below, key, stranger.Root, noon, "is not valid below any root"},
		"ended":    {below, key, root.Root, noon.Add(2 * time.Hour), "expired or is not yet valid"},
		"early":    {below, key, root.Root, noon.Add(-time.Hour), "expired or is not yet valid"},
	} {
		s, err := NewSigner(tc.cert, tc.key, nil, NewBundle(tc.root), tc.at)
		switch {
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want == "" && len(s.Intermediates) != 1:
			t.Errorf("%s: %d intermediates, want the authority itself", name, len(s.Intermediates))
		}
	}
}

// No bytes are signed that are not a request of a key that may be.
func FuzzParseRequest(f *testing.F) {
	f.Add(encodeRequest(f, NewKey(), x509.CertificateRequest{DNSNames: []string{"a"}}))
	f.Add(encodeRequest(f, rsaKey(f), x509.CertificateRequest{}))
	s := testRoot(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRequest(text)
		if err != nil {
			if !errors.Is(err, ErrRequest) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		leaf, err := Issue(s, Grant{ID: web(t), Key: r.Key}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := spiffe.Of(leaf); err != nil || id != web(t) {
			t.Fatalf("it names %v, error %v", id, err)
		}
	})
}

// BenchmarkIssue signs for a request that is read anew each time; BenchmarkSignAlone is what that
// costs at least.
func BenchmarkIssue(b *testing.B) {
	s, id := testRoot(b), web(b)
	text := encodeRequest(b, NewKey(), x509.CertificateRequest{})
	b.ReportAllocs()
	for b.Loop() {
		r, err := ParseRequest(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Issue(s, Grant{ID: id, Key: r.Key}, noon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignAlone(b *testing.B) {
	s := testRoot(b)
	text := encodeRequest(b, NewKey(), x509.CertificateRequest{})
	b.ReportAllocs()
	for b.Loop() {
		block, _ := pem.Decode(text)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			b.Fatal(err)
		}
		if err := csr.CheckSignature(); err != nil {
			b.Fatal(err)
		}
		t := &x509.Certificate{NotBefore: noon, NotAfter: noon.Add(time.Hour)}
		if _, err := x509.CreateCertificate(rand.Reader, t, s.Cert, csr.PublicKey, s.Key); err != nil {
			b.Fatal(err)
		}
	}
}
