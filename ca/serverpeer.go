package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Peer is a workload at the other end of a connection.
type Peer struct {
	// ID is its identity.
	ID spiffe.ID
	// Leaf is its certificate. It ends at Leaf.NotAfter, and with it what it proves.
	Leaf *x509.Certificate
	// Fingerprint is the SHA-256 of Leaf's DER in hexadecimal digits.
	Fingerprint string
}

// PeerConfig says whom a PeerVerifier believes.
type PeerConfig struct {
	// Bundle is the roots that are trusted now.
	Bundle func() *Bundle
	// TrustDomain is that of this mesh; Aliases are other names of it.
	TrustDomain string
	Aliases     []string
	// Ledger knows who is revoked.
	Ledger *Ledger
}

// PeerVerifier tells which workload is at the other end of a TLS connection. Safe for concurrent
// use.
type PeerVerifier struct {
	config  PeerConfig // set once
	domains []string   // set once: all names of this mesh; nil when it has one
}

// maxChain bounds a client's chain: verifying costs.
const maxChain = 8

// maxNamesakes bounds the certificates of one name in a chain: each is tried for each that it may
// have signed, and whoever sends them need not have proven anything. A root that was certified anew
// by the one before it comes twice.
const maxNamesakes = 2

// NewPeerVerifier makes one.
func NewPeerVerifier(c PeerConfig) *PeerVerifier {
	v := &PeerVerifier{config: c}
	if len(c.Aliases) > 0 {
		v.domains = append([]string{c.TrustDomain}, c.Aliases...)
	}
	return v
}

// Verify tells who has a chain, leaf first, whose key was proven to be at hand. A certificate of a
// workload has exactly one name, its identity: what names a server or an authority too is not one.
// Errors: *Refusal.
func (v *PeerVerifier) Verify(chain []*x509.Certificate, now time.Time) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, refuseCertificate("no certificate", errors.New("the connection has no client certificate"))
	}
	p, err := v.named(chain[0])
	if err != nil {
		return Peer{}, err
	}
	if err := v.leads(chain, now); err != nil {
		return Peer{}, err
	}
	return p, v.good(p, now)
}

// named is the workload of this mesh that a certificate names. Who signed it is not looked at.
// Errors: *Refusal.
func (v *PeerVerifier) named(leaf *x509.Certificate) (Peer, error) {
	id, err := workloadOf(leaf)
	if err != nil {
		return Peer{}, refuseCertificate("not a workload", err)
	}
	if id.TrustDomain != v.config.TrustDomain && !slices.Contains(v.config.Aliases, id.TrustDomain) {
		return Peer{}, refuseCertificate("trust domain",
			fmt.Errorf("%s is not of the trust domain %s or one of its aliases", id, v.config.TrustDomain))
	}
	return Peer{ID: id, Leaf: leaf, Fingerprint: Fingerprint(leaf)}, nil
}

// workloadOf is the identity of a certificate that can be a workload's.
func workloadOf(leaf *x509.Certificate) (spiffe.ID, error) {
	id, err := spiffe.Of(leaf)
	switch {
	case err != nil:
		return id, err
	case len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0:
		return id, fmt.Errorf("the certificate of %s has other names too: %v %v", id, leaf.DNSNames, leaf.IPAddresses)
	case leaf.IsCA:
		return id, fmt.Errorf("the certificate of %s is one of an authority", id)
	}
	return id, nil
}

// leads says why a chain does not lead to a trusted root.
func (v *PeerVerifier) leads(chain []*x509.Certificate, now time.Time) error {
	if len(chain) > maxChain {
		return refuseCertificate("long chain", fmt.Errorf("the chain has %d certificates, at most %d are read",
			len(chain), maxChain))
	}
	names := make(map[string]int, len(chain))
	for _, c := range chain {
		if names[string(c.RawSubject)]++; names[string(c.RawSubject)] > maxNamesakes {
			return refuseCertificate("long chain", fmt.Errorf("the chain has more than %d certificates of one name",
				maxNamesakes))
		}
	}
	err := v.config.Bundle().verify(chain, x509.ExtKeyUsageClientAuth, now)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return refuseCertificate("expired", err)
	}
	return refuseCertificate(reasonUntrusted, err)
}

// good says whether a peer's certificate has begun, has not ended, and is not revoked. Errors:
// *Refusal.
func (v *PeerVerifier) good(p Peer, now time.Time) error {
	if now.Before(p.Leaf.NotBefore) || now.After(p.Leaf.NotAfter) {
		return refuseCertificate("expired", fmt.Errorf("the certificate of %s is valid from %s to %s", p.ID,
			p.Leaf.NotBefore.Format(time.RFC3339), p.Leaf.NotAfter.Format(time.RFC3339)))
	}
	return v.Revoked(p.ID, p.Fingerprint)
}

// Revoked says why an identity, or the certificate with a fingerprint, is out, by what was last
// read of revocations: a revoked identity is out under every name that this mesh has or had.
// Errors: *Refusal.
func (v *PeerVerifier) Revoked(id spiffe.ID, fingerprint string) error {
	if err := v.config.Ledger.revokedNow(id.String(), fingerprint); err != nil {
		return refuseCertificate(reasonRevoked, err)
	}
	for _, domain := range v.domains {
		if id.TrustDomain = domain; v.config.Ledger.revokedNow(id.String(), fingerprint) != nil {
			return refuseCertificate(reasonRevoked, fmt.Errorf("identity %s is revoked", id))
		}
	}
	return nil
}

// Names are identities under all names of this mesh, sorted, each once: whom peers have to refuse
// where these are revoked.
func (v *PeerVerifier) Names(identities []string) []string {
	if len(v.domains) == 0 {
		return identities
	}
	out := slices.Clone(identities)
	for _, text := range identities {
		id, err := spiffe.Parse(text)
		if err != nil || !slices.Contains(v.domains, id.TrustDomain) {
			continue // of another mesh
		}
		for _, id.TrustDomain = range v.domains {
			out = append(out, id.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// peerChain is the client's chain of a gRPC connection, or nil.
func peerChain(info credentials.AuthInfo) []*x509.Certificate {
	if t, ok := info.(credentials.TLSInfo); ok {
		return t.State.PeerCertificates
	}
	return nil
}

// ServerTLS is how 15012 speaks TLS. It asks for a client certificate and takes any: a machine that
// joins has none, and whose it is, is judged by a PeerVerifier where it matters. There are no
// session tickets: each connection shows its certificate anew. TLS 1.2 is the least, as with
// Istio's agents and gRPC's clients in other languages.
func ServerTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		GetCertificate:         certificate,
		ClientAuth:             tls.RequestClientCert,
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
	}
}
