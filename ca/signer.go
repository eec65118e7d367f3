package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Signer signs certificates. It has the certificate of an authority, its key, and the chain to a
// root. Immutable.
type Signer struct {
	Cert *x509.Certificate
	Key  crypto.Signer
	// Intermediates are the certificates between a leaf and Root, with Cert first. Empty if Cert is
	// Root.
	Intermediates []*x509.Certificate
	Root          *x509.Certificate

	root string // the ID of Root
}

// NewSigner makes a signer and checks that key belongs to cert and that cert chains to one of the
// roots. chain has the certificates between the two, and may include both.
func NewSigner(cert *x509.Certificate, key crypto.Signer, chain []*x509.Certificate, roots *Bundle,
	now time.Time) (*Signer, error) {
	paths, err := cert.Verify(x509.VerifyOptions{Roots: roots.pool, Intermediates: pool(chain), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, fmt.Errorf("the authority's certificate is not valid below any root: %w", err)
	}
	path := slices.MinFunc(paths, func(a, b []*x509.Certificate) int { return len(a) - len(b) })
	last := len(path) - 1
	s := &Signer{Cert: cert, Key: key, Intermediates: path[:last:last], Root: path[last], root: RootID(path[last])}
	if err := errors.Join(checkAuthority(cert), checkKey(key.Public())); err != nil {
		return nil, err
	}
	if !sameKey(cert.PublicKey, key.Public()) {
		return nil, errors.New("the key is not that of the authority's certificate")
	}
	return s, nil
}

// equal reports whether two signers, of which s may be nil, have the same certificates.
func (s *Signer) equal(other *Signer) bool {
	return s != nil && s.Cert.Equal(other.Cert) && s.Root.Equal(other.Root) &&
		slices.EqualFunc(s.Intermediates, other.Intermediates, (*x509.Certificate).Equal)
}

// constrainsDNS reports whether an authority of the chain limits DNS names of certificates below it.
func (s *Signer) constrainsDNS() bool {
	return slices.ContainsFunc(append(slices.Clone(s.Intermediates), s.Root), func(c *x509.Certificate) bool {
		return len(c.PermittedDNSDomains)+len(c.ExcludedDNSDomains) > 0
	})
}

// checkAuthority returns why a certificate is not that of an authority.
func checkAuthority(c *x509.Certificate) error {
	switch {
	case !c.IsCA || !c.BasicConstraintsValid:
		return fmt.Errorf("%s is not the certificate of a CA (basic constraints)", title(c))
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("%s may not sign certificates (key usage)", title(c))
	}
	return nil
}

// NewKey makes a private key: ECDSA P-256.
func NewKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return key
}

// NewRoot makes a self-signed root.
func NewRoot(name string, life time.Duration, key crypto.Signer, now time.Time) (*Signer, error) {
	t := newAuthority(name, life, now)
	cert, err := createCertificate(t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return NewSigner(cert, key, nil, NewBundle(cert), now)
}

// NewIntermediate signs the certificate of an intermediate authority whose public key is key. The
// intermediate cannot sign other authorities, and expires with s at the latest.
func (s *Signer) NewIntermediate(name string, life time.Duration, key crypto.PublicKey, now time.Time) (
	*x509.Certificate, error) {
	t := newAuthority(name, life, now)
	t.MaxPathLenZero = true
	t.NotBefore, t.NotAfter = later(t.NotBefore, s.Cert.NotBefore), earlier(t.NotAfter, s.Cert.NotAfter)
	return createCertificate(t, s.Cert, key, s.Key)
}

// newAuthority returns the template of an authority's certificate.
func newAuthority(name string, life time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name, Organization: []string{"Ashore"}, SerialNumber: rand.Text()},
		NotBefore:             now.Add(-backdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(life).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// cross returns a cross-signed certificate: the name and key of another root, signed by p. Peers
// that trust only p then accept certificates below the other root. It expires when the first of the
// two roots does. Errors: ErrSigner.
func (p *pair) cross(other *x509.Certificate, now time.Time) (*x509.Certificate, error) {
	t := newAuthority("", 0, now)
	t.RawSubject, t.SubjectKeyId = other.RawSubject, other.SubjectKeyId
	t.NotBefore, t.NotAfter = later(t.NotBefore, p.cert.NotBefore), earlier(other.NotAfter, p.cert.NotAfter)
	return createCertificate(t, p.cert, other.PublicKey, p.key)
}
