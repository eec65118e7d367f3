package ca

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
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

// builtInNames are the names that a control plane always has: on its own machine, and for Istio's
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

// newServerNames separates names and addresses, each once. Errors: one is neither.
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
			return s, fmt.Errorf("%q cannot be a name of the control plane: want a DNS name or an IP address, "+
				"without a port", n)
		default:
			s.dns = append(s.dns, n)
		}
	}
	return s, nil
}

// issueServer signs the control plane's certificate. The chain it presents ends with the roots that
// the mesh trusts, the signer's last: a machine that joins knows only the hash of a root.
// Errors: ErrSigner.
func issueServer(s *Signer, b *Bundle, trustDomain string, names serverNames, now time.Time) (
	*tls.Certificate, error) {
	key := NewKey()
	t := s.leaf(ControlPlaneID(trustDomain), serverLife, now)
	t.DNSNames, t.IPAddresses = names.dns, names.ips
	leaf, err := createCertificate(t, s.Cert, key.Public(), s.Key)
	if err != nil {
		return nil, err
	}
	chain := append([]*x509.Certificate{leaf}, s.Intermediates...)
	if err := verifyControlPlane(chain, b, trustDomain, x509.ExtKeyUsageServerAuth, now); err != nil {
		return nil, fmt.Errorf("%w: the certificate of the control plane: %w", ErrSigner, err)
	}
	for _, root := range b.Roots {
		if !root.Equal(s.Root) {
			chain = append(chain, root)
		}
	}
	out := &tls.Certificate{PrivateKey: key, Leaf: leaf}
	for _, c := range append(chain, s.Root) {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

// controlPlaneTLS configures clients of a control plane. The server must have the control plane's
// identity, below a root of the bundle. Its host name does not matter.
func controlPlaneTLS(b *Bundle, trustDomain string, now time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // it is verified below, by its identity
		VerifyConnection: func(s tls.ConnectionState) error {
			return verifyControlPlane(s.PeerCertificates, b, trustDomain, x509.ExtKeyUsageServerAuth, now)
		},
	}
}

// verifyControlPlane returns why a chain, leaf first, is not that of a control plane of the mesh.
func verifyControlPlane(chain []*x509.Certificate, b *Bundle, trustDomain string, usage x509.ExtKeyUsage,
	now time.Time) error {
	if len(chain) == 0 || len(chain) > maxChain {
		return fmt.Errorf("the chain has %d certificates, want 1 to %d", len(chain), maxChain)
	}
	if err := b.verify(chain, usage, now); err != nil {
		return err
	}
	if want := ControlPlaneID(trustDomain).String(); len(chain[0].URIs) != 1 || chain[0].URIs[0].String() != want {
		return fmt.Errorf("it is not %s", want)
	}
	return nil
}

// half is when half of a certificate's validity is over.
func half(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 2)
}

// due reports whether a certificate has to be replaced by one that expires at end: half of its
// validity is over, and the new one is valid longer.
func due(c *x509.Certificate, end, now time.Time) bool {
	return !now.Before(half(c)) && end.After(c.NotAfter.Add(time.Minute))
}
