package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"time"
)

// Signer is what signs: the certificate of an authority, its key, and what leads from it to a root.
// Immutable.
type Signer struct {
	Cert *x509.Certificate
	Key  crypto.Signer
	// Intermediates are what peers need to get from a leaf to Root: Cert first, unless that is the
	// root itself.
	Intermediates []*x509.Certificate
	Root          *x509.Certificate

	texts []string // Intermediates as PEM
	root  string   // the ID of Root
}

// NewSigner puts a signer together and checks that it can sign: every part must fit, and a leaf
// must verify. chain leads from cert, which is left out, to the root, which is left out too. Errors
// say what does not fit.
func NewSigner(cert *x509.Certificate, key crypto.Signer, chain []*x509.Certificate, root *x509.Certificate,
	now time.Time) (*Signer, error) {
	s := &Signer{Cert: cert, Key: key, Root: root, root: RootID(root)}
	if !cert.Equal(root) {
		s.Intermediates = append(s.Intermediates, cert)
	}
	for _, c := range chain {
		if !c.Equal(cert) && !c.Equal(root) {
			s.Intermediates = append(s.Intermediates, c)
		}
	}
	if err := errors.Join(checkAuthority(cert), checkAuthority(root), checkKey(key.Public())); err != nil {
		return nil, err
	}
	switch {
	case !sameKey(cert.PublicKey, key.Public()):
		return nil, errors.New("the key is not that of the authority's certificate")
	case now.Before(cert.NotBefore):
		return nil, fmt.Errorf("the authority's certificate begins at %s", cert.NotBefore.Format(time.RFC3339))
	case !now.Before(cert.NotAfter):
		return nil, fmt.Errorf("the authority's certificate ended at %s", cert.NotAfter.Format(time.RFC3339))
	}
	for _, c := range s.Intermediates {
		s.texts = append(s.texts, string(EncodeCertificates(c)))
	}
	return s, s.leads(now)
}

// leads says what keeps the chain from leading to the root.
func (s *Signer) leads(now time.Time) error {
	opts := x509.VerifyOptions{Roots: pool([]*x509.Certificate{s.Root}), Intermediates: pool(s.Intermediates),
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := s.Cert.Verify(opts); err != nil {
		return fmt.Errorf("the authority's certificate does not lead to the root: %w", err)
	}
	return nil
}

// checkAuthority says what keeps a certificate from being that of an authority.
func checkAuthority(c *x509.Certificate) error {
	switch {
	case !c.IsCA || !c.BasicConstraintsValid:
		return fmt.Errorf("%s is not the certificate of a CA (basic constraints)", title(c))
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("%s may not sign certificates (key usage)", title(c))
	}
	return nil
}

// KeyKind is of what kind a key is.
type KeyKind int

// The kinds of keys that are made.
const (
	ECDSAP256 KeyKind = iota
	RSA2048
)

// NewKey makes a private key.
func NewKey(kind KeyKind, random io.Reader) (crypto.Signer, error) {
	switch kind {
	case RSA2048:
		return rsa.GenerateKey(random, 2048)
	default:
		return ecdsa.GenerateKey(elliptic.P256(), random)
	}
}

// Authority describes a certificate of an authority that is to be made.
type Authority struct {
	// Name is its common name: "Ashore root of cluster.local".
	Name string
	// Validity is how long it is valid from now on.
	Validity time.Duration
	// Leaves says that it signs no other authorities.
	Leaves bool
}

// NewRoot makes a root that signs itself.
func NewRoot(a Authority, key crypto.Signer, now time.Time, random io.Reader) (*Signer, error) {
	cert, err := a.sign(nil, key.Public(), key, now, random)
	if err != nil {
		return nil, err
	}
	return NewSigner(cert, key, nil, cert, now)
}

// NewIntermediate makes an authority below s for the holder of key. It ends with s at the latest.
func (s *Signer) NewIntermediate(a Authority, key crypto.PublicKey, now time.Time, random io.Reader) (*x509.Certificate,
	error) {
	return a.sign(s.Cert, key, s.Key, now, random)
}

// sign makes the certificate, signed by parent with by, or by itself when parent is nil.
func (a Authority) sign(parent *x509.Certificate, key crypto.PublicKey, by crypto.Signer, now time.Time,
	random io.Reader) (*x509.Certificate, error) {
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	id := sha256.Sum256(spki)
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{CommonName: a.Name, Organization: []string{"Ashore"},
			SerialNumber: serial.Text(16)},
		NotBefore:             now.Add(-backdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(a.Validity).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        a.Leaves,
		SubjectKeyId:          id[:20],
	}
	if parent == nil {
		parent = t
	} else {
		t.NotBefore, t.NotAfter = later(t.NotBefore, parent.NotBefore), earlier(t.NotAfter, parent.NotAfter)
	}
	return createCertificate(t, parent, key, by, random)
}
