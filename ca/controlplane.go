package ca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// serverLife is how long the control plane's own certificate lives. It is renewed at half of that.
const serverLife = 24 * time.Hour

// ControlPlaneID is the identity of the control plane. No workload can have it: it is not of the
// form of theirs.
func ControlPlaneID(trustDomain string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/ashore/control-plane"}
}

// builtInNames are what a control plane is always reached by: from its own machine, and by Istio's
// agents.
func builtInNames() []string {
	return []string{
		"localhost", "127.0.0.1", "::1",
		"istiod.istio-system.svc", "istiod-remote.istio-system.svc", "istio-pilot.istio-system.svc",
	}
}

// serverNames are the names and addresses of the control plane's certificate.
type serverNames struct {
	dns []string
	ips []net.IP
}

// newServerNames sorts names and addresses; each counts once. Errors: one is neither.
func newServerNames(names []string) (serverNames, error) {
	var s serverNames
	for _, n := range append(builtInNames(), names...) {
		n = strings.ToLower(n)
		ip := net.ParseIP(n)
		switch {
		case ip != nil && !slices.ContainsFunc(s.ips, ip.Equal):
			s.ips = append(s.ips, ip)
		case ip != nil || slices.Contains(s.dns, n):
		case !dnsname.Valid(n):
			return s, fmt.Errorf("%q cannot be a name of the control plane: want a DNS name or an IP address, without a port", n)
		default:
			s.dns = append(s.dns, n)
		}
	}
	return s, nil
}

// issueServer signs the control plane's certificate. The chain it presents ends with the roots that
// it leads to, the signer's last: a machine that joins knows no more of a root than its hash.
// Errors: ErrSigner.
func issueServer(s *Signer, b *Bundle, trustDomain string, names serverNames, kind KeyKind, now time.Time,
	random io.Reader) (*tls.Certificate, error) {
	key, err := NewKey(kind, random)
	if err != nil {
		return nil, fmt.Errorf("%w: make a key: %w", ErrSigner, err)
	}
	t, err := s.leaf(ControlPlaneID(trustDomain), serverLife, now, random)
	if err != nil {
		return nil, err
	}
	t.DNSNames, t.IPAddresses = names.dns, names.ips
	der, err := x509.CreateCertificate(random, t, s.Cert, key.Public(), s.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: what was signed cannot be read: %w", ErrSigner, err)
	}
	if !sameKey(leaf.PublicKey, key.Public()) || len(leaf.URIs) != 1 || *leaf.URIs[0] != *t.URIs[0] || leaf.IsCA {
		return nil, fmt.Errorf("%w: what was signed is not what was meant", ErrSigner)
	}
	chain, err := serverChain(leaf, s, b, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// serverChain is what the control plane presents: its certificate, what leads to the roots, and
// those of a bundle that it leads to, the signer's last.
func serverChain(leaf *x509.Certificate, s *Signer, b *Bundle, now time.Time) ([][]byte, error) {
	chain, between := [][]byte{leaf.Raw}, x509.NewCertPool()
	for _, c := range s.Intermediates {
		chain = append(chain, c.Raw)
		between.AddCert(c)
	}
	err := errors.New("it leads to no root of the bundle")
	for _, root := range b.Roots {
		pool := x509.NewCertPool()
		pool.AddCert(root)
		_, e := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now})
		switch {
		case root.Equal(s.Root):
			err = e
		case e == nil:
			chain = append(chain, root.Raw)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate of the control plane: %w", err)
	}
	if !bytes.Equal(chain[len(chain)-1], s.Root.Raw) {
		chain = append(chain, s.Root.Raw)
	}
	return chain, nil
}

// ControlPlaneTLS is for who calls a control plane of the mesh: whoever answers has to have its
// identity, by a root that is trusted at that moment. By what name it is called does not matter.
func ControlPlaneTLS(bundle func() *Bundle, trustDomain string) *tls.Config {
	want := ControlPlaneID(trustDomain).String()
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // it is verified below, by its identity
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf, between := s.PeerCertificates[0], x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: bundle().Pool(), Intermediates: between}); err != nil {
				return err
			}
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != want {
				return fmt.Errorf("it is not %s", want)
			}
			return nil
		},
	}
}

// half is when half of a certificate's life is over.
func half(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 2)
}

// due says whether a certificate is to be replaced by one that ends at end: half of its life is
// over, and the new one lives longer.
func due(c *x509.Certificate, end, now time.Time) bool {
	return !now.Before(half(c)) && end.After(c.NotAfter.Add(time.Minute))
}
