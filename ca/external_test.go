package ca

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// external signs what a request asks for, as some signers do, below a root of its own.
type external struct {
	l      *lab
	signer *Signer
	change func(*x509.Certificate)
	key    keyer // in place of that of the request
	err    error
}

func (e *external) Sign(_ context.Context, request []byte, validity time.Duration) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	block, _ := pem.Decode(request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{NotBefore: noon.Add(-time.Minute), NotAfter: e.l.now().Add(validity), URIs: r.URIs,
		Subject: r.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if e.change != nil {
		e.change(t)
	}
	key := r.PublicKey
	if e.key != nil {
		key = e.key.Public()
	}
	leaf, err := createCertificate(t, e.signer.Cert, key, e.signer.Key)
	if err != nil {
		return nil, err
	}
	return EncodeCertificates(append([]*x509.Certificate{leaf}, append(e.signer.Intermediates, e.signer.Root)...)...), nil
}

// newExternal makes an external signer the one of a lab.
func newExternal(t *testing.T) (*lab, *external) {
	t.Helper()
	l, root := newLab(t, nil), testRoot(t)
	e := &external{l: l, signer: labSigner(t, root)}
	l.server.config.External = e
	l.bundle = NewBundle(l.root.Cert, root.Cert)
	l.serve()
	return l, e
}

// requestFor is a request for an identity, as Istio's agents make it.
func (l *lab) requestFor(key keyer, uris ...string) []byte {
	l.t.Helper()
	r := x509.CertificateRequest{Subject: pkix.Name{Organization: []string{""}}}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			l.t.Fatal(err)
		}
		r.URIs = append(r.URIs, u)
	}
	return encodeRequest(l.t, key, r)
}

const webURI = "spiffe://cluster.local/ns/shop/sa/web"

// An external signer signs the requests of workloads, which renew below its root and stay in their
// group.
func TestExternal(t *testing.T) {
	t.Parallel()
	l, e := newExternal(t)
	key := NewKey()
	first, chain, err := l.ask(client{token: l.token("shop/web"), name: "a", key: key, csr: l.requestFor(key, webURI)})
	if err != nil {
		t.Fatal(err)
	}
	if len(chain) != 3 || chain[2] != l.bundle.text || strings.Count(chain[2], "BEGIN") != 2 {
		t.Errorf("the chain has %d elements, and not the leaf, the intermediate and both roots", len(chain))
	}
	next := NewKey()
	second, _, err := l.ask(client{cert: first, key: next, name: "a", csr: l.requestFor(next, webURI)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.ledger.Holds(t.Context(), second.Leaf)
	if err != nil || w.Group != "shop/web" || w.Leaves[0].Root != RootID(e.signer.Root) {
		t.Errorf("the index has %+v, error %v", w, err)
	}
	if got := l.server.Problems(); len(got) > 0 {
		t.Errorf("problems: %v", got)
	}
}

// A request for anything but the caller's identity never reaches the signer. One without names is how
// agents learn their identity, and is not in the audit log.
func TestExternalRequests(t *testing.T) {
	t.Parallel()
	l, e := newExternal(t)
	e.err = errors.New("it was asked")
	key := NewKey()
	u, _ := url.Parse(webURI)
	for name, csr := range map[string][]byte{
		"no name":          l.requestFor(key),
		"another identity": l.requestFor(key, "spiffe://cluster.local/ns/shop/sa/api"),
		"two":              l.requestFor(key, webURI, "spiffe://cluster.local/ns/shop/sa/api"),
		"a DNS name":       encodeRequest(t, key, x509.CertificateRequest{URIs: []*url.URL{u}, DNSNames: []string{"web"}}),
		"a subject": encodeRequest(t, key, x509.CertificateRequest{URIs: []*url.URL{u},
			Subject: pkix.Name{Organization: []string{"system:masters"}}}),
		"an extension": encodeRequest(t, key, x509.CertificateRequest{URIs: []*url.URL{u},
			ExtraExtensions: []pkix.Extension{{Id: workloadExtension(), Value: []byte("x")}}}),
	} {
		_, _, err := l.ask(client{token: l.token("shop/web"), name: "a", key: key, csr: csr})
		if err := wantRefused(err, codes.InvalidArgument, "has to have the URI "+webURI); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err = l.audited(audit.TokenRefuse, "has to have the URI")
		if asks := name == "no name"; asks != (err != nil) {
			t.Errorf("%s: in the audit log: %v", name, err)
		}
	}
}

// What was signed is handed out only if it is what was meant. Otherwise, and where the signer does
// not sign, agents try again, and a problem says why.
func TestExternalRefuses(t *testing.T) {
	t.Parallel()
	l, e := newExternal(t)
	other, _ := url.Parse("spiffe://cluster.local/ns/shop/sa/api")
	for name, tc := range map[string]struct {
		external external
		want     string
	}{
		"fails":         {external{err: errors.New("no right to approve")}, "no right to approve"},
		"another name":  {external{change: func(c *x509.Certificate) { c.URIs = []*url.URL{other} }}, "its names are not just " + webURI},
		"one more name": {external{change: func(c *x509.Certificate) { c.DNSNames = []string{"web"} }}, "its names are not just"},
		"another key":   {external{key: NewKey()}, "another key"},
		"an authority": {external{change: func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }},
			"the certificate of an authority"},
		"for servers only": {external{change: func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }},
			"incompatible key usage"},
		"another root": {external{signer: labSigner(t, testRoot(t))}, "unknown authority"},
	} {
		if tc.external.signer == nil {
			tc.external.signer = e.signer
		}
		tc.external.l = l
		l.server.config.External = &tc.external
		key := NewKey()
		_, _, err := l.ask(client{token: l.token("shop/web"), name: "a", key: key, csr: l.requestFor(key, webURI)})
		if err := wantRefused(err, codes.Unavailable, publicExternal); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := l.server.Problems(); len(got) != 1 || !strings.Contains(got[0], tc.want) {
			t.Errorf("%s: problems are %q, want %q", name, got, tc.want)
		}
	}
}

// The roots of an external signer are trusted too, and follow their file. A rotation does not wait for
// them.
func TestSignerRoots(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "root.pem")
	first, second := testRoot(t).Cert, testRoot(t).Cert
	write := func(text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := ManagerConfig{Dir: filepath.Join(t.TempDir(), "ca"), TrustDomain: "cluster.local", Records: record.NewMemory(),
		SignerRoots: file, Now: func() time.Time { return noon },
		Dependents: func(context.Context) ([]Dependent, error) {
			return []Dependent{{Workload: "shop/web", RootID: RootID(first), Until: noon.Add(time.Hour)}}, nil
		}}
	if _, err := NewManager(t.Context(), c); err == nil || !strings.Contains(err.Error(), "ca.signer.roots") {
		t.Errorf("without the file: %v", err)
	}
	write(EncodeCertificates(first))
	m, err := NewManager(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	trusts := func(want ...*x509.Certificate) {
		t.Helper()
		roots := m.Bundle().Roots
		for _, c := range want {
			if !slices.ContainsFunc(roots, c.Equal) || len(roots) != len(want) {
				t.Errorf("%d roots are trusted, want %d", len(roots), len(want))
			}
		}
	}
	own, before := m.Signer().Root, m.Bundle()
	trusts(own, first)
	m.look(t.Context())
	if m.Bundle() != before {
		t.Error("nothing changed, and the bundle did")
	}
	write(EncodeCertificates(first, second))
	m.look(t.Context())
	trusts(own, first, second)
	m.config.Now = func() time.Time { return noon.Add(900 * time.Hour) }
	if s, err := m.Show(t.Context()); err != nil || !strings.Contains(strings.Join(s.Problems, "\n"), file+" expires at") {
		t.Errorf("before their end, problems are %q, error %v", s.Problems, err)
	}
	m.config.Now = c.Now
	write([]byte("hello"))
	m.look(t.Context())
	trusts(own, first, second)
	if s, err := m.Show(t.Context()); err != nil || !strings.Contains(strings.Join(s.Problems, "\n"), "ca.signer.roots") {
		t.Errorf("shown are %q, error %v", s.Problems, err)
	}
	write(EncodeCertificates(first))
	m.look(t.Context())
	if s, err := m.Rotate(t.Context(), RotateRequest{Actor: "tester"}); err != nil || s.Rotation.Count != 1 {
		t.Errorf("it waits for %+v, error %v", s.Rotation.Waiting, err)
	}
}
