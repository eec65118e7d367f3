package ca

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// ErrSigner is why nothing can be signed: it is the authority's fault.
var ErrSigner = errors.New("cannot sign")

const (
	// backdate is how long before now a certificate begins, for clocks that are late. As in Istio.
	backdate = 2 * time.Minute
	// defaultValidity is how long a certificate lives unless something else is set.
	defaultValidity = 24 * time.Hour
)

// Grant is what a certificate is meant to say.
type Grant struct {
	// ID is the authenticated identity.
	ID spiffe.ID
	// Workload is the "namespace/name" that distinguishes workloads of one identity, as WorkloadName
	// returns it. It may be empty.
	Workload string
	// PeerName is the DNS name by which metrics know the workload, of package peername; it is no
	// identity. It may be empty.
	PeerName string
	// Key is the workload's public key.
	Key crypto.PublicKey
	// Validity is how long the certificate lives. Zero means 24h.
	Validity time.Duration
}

// Issue signs a certificate for a grant. It expires with the signer at the latest. Errors:
// ErrSigner.
func Issue(s *Signer, g Grant, now time.Time) (*x509.Certificate, error) {
	t := s.leaf(g.ID.URL(), cmp.Or(g.Validity, defaultValidity), now)
	if g.Workload != "" {
		name, err := asn1.Marshal(g.Workload)
		if err != nil {
			return nil, fmt.Errorf("%w: name the workload %q: %w", ErrSigner, g.Workload, err)
		}
		t.ExtraExtensions = []pkix.Extension{{Id: workloadExtension(), Value: name}}
	}
	if g.PeerName != "" && !s.constrainsDNS() {
		t.DNSNames = []string{g.PeerName}
	}
	if !t.NotAfter.After(now) {
		return nil, fmt.Errorf("%w: the certificate of the authority expired at %s", ErrSigner,
			s.Cert.NotAfter.Format(time.RFC3339))
	}
	leaf, err := createCertificate(t, s.Cert, g.Key, s.Key)
	if err != nil {
		return nil, err
	}
	if err := s.check(leaf, t, g); err != nil {
		return nil, fmt.Errorf("%w: what was signed is not what was meant: %w", ErrSigner, err)
	}
	return leaf, nil
}

// leaf is what a certificate below the signer says, but for its key: who it is for, and that it may
// be shown by both ends of a connection. It ends with the signer at the latest.
func (s *Signer) leaf(id *url.URL, life time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		NotBefore:             later(now.Add(-backdate), s.Cert.NotBefore).UTC().Truncate(time.Second),
		NotAfter:              earlier(now.Add(life), s.Cert.NotAfter).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id},
	}
}

// createCertificate signs a template for a key, with a random serial number, and reads what was
// signed. Errors: ErrSigner.
func createCertificate(t, parent *x509.Certificate, key crypto.PublicKey, by crypto.Signer) (*x509.Certificate,
	error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key, by)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: what was signed cannot be read: %w", ErrSigner, err)
	}
	return c, nil
}

// check compares what was signed with what was meant. x509.CreateCertificate has
// verified the signature, and NewSigner that the key is the authority's.
func (s *Signer) check(leaf, meant *x509.Certificate, g Grant) error {
	id, err := spiffe.Of(leaf)
	switch {
	case err != nil:
		return err
	case id != g.ID:
		return fmt.Errorf("it names %s", id)
	case !slices.Equal(leaf.DNSNames, meant.DNSNames), len(leaf.EmailAddresses)+len(leaf.IPAddresses) > 0,
		len(leaf.Subject.ToRDNSequence()) > 0:
		return errors.New("it has other names")
	case extensionName(leaf) != g.Workload:
		return fmt.Errorf("it names workload %q", extensionName(leaf))
	case leaf.IsCA || leaf.KeyUsage != meant.KeyUsage || len(leaf.UnknownExtKeyUsage) > 0 || len(leaf.ExtKeyUsage) != 2:
		return errors.New("it may be used for more")
	case !leaf.NotBefore.Equal(meant.NotBefore) || !leaf.NotAfter.Equal(meant.NotAfter):
		return fmt.Errorf("it is valid from %s to %s", leaf.NotBefore, leaf.NotAfter)
	case !sameKey(leaf.PublicKey, g.Key):
		return errors.New("it has another key")
	case !bytes.Equal(leaf.RawIssuer, s.Cert.RawSubject):
		return errors.New("it has another issuer")
	}
	for _, e := range leaf.Extensions {
		if e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) && !e.Critical { // RFC 5280, 4.2.1.6: with an empty subject
			return errors.New("its names are not critical")
		}
	}
	return nil
}

// sameKey says whether two public keys are one.
func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
