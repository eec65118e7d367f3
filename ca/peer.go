package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Peer is a workload at the other end of a connection.
type Peer struct {
	// ID is its identity.
	ID spiffe.ID
	// Leaf is its certificate.
	Leaf *x509.Certificate
	// Fingerprint is that of Leaf.
	Fingerprint string
}

// PeerVerifier identifies the workload at the other end of a TLS connection. Safe for concurrent
// use.
type PeerVerifier struct {
	bundle func() *Bundle // immutable
	ledger *Ledger        // immutable
}

// maxChain bounds a client's chain, because verification costs.
const maxChain = 8

// maxSameSubject bounds the certificates of one name in a client's chain: each is tried for each that
// it may have signed, before the client has proven anything. A root that was cross-signed by the
// one before it comes twice.
const maxSameSubject = 2

// Reasons of refusals that are also used elsewhere.
const reasonUntrusted, reasonRevoked = "untrusted", "revoked"

// NewPeerVerifier makes a verifier for the trust domains of a ledger. bundle returns the roots that
// are trusted now.
func NewPeerVerifier(bundle func() *Bundle, ledger *Ledger) *PeerVerifier {
	return &PeerVerifier{bundle, ledger}
}

// Verify identifies the client of a TLS connection by its chain, leaf first. A certificate of a
// workload has its identity, maybe a name for metrics, and no other name: no certificate of a server
// or an authority is one.
// Errors: *Refusal.
func (v *PeerVerifier) Verify(chain []*x509.Certificate, now time.Time) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, refusal(byCertificate, "no certificate", "the connection has no client certificate")
	}
	if err := v.trusted(chain, now); err != nil { // first, because anyone can write the names
		return Peer{}, err
	}
	p, err := v.named(chain[0])
	if err != nil {
		return Peer{}, err
	}
	return p, v.checkValidity(p, now)
}

// named returns the workload of this mesh that a certificate names, whoever signed it. Errors:
// *Refusal.
func (v *PeerVerifier) named(leaf *x509.Certificate) (Peer, error) {
	id, err := spiffe.Of(leaf)
	switch {
	case err != nil:
	case len(leaf.DNSNames) > 0 && peerName(leaf) == "" || len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0:
		err = fmt.Errorf("the certificate of %s has other names too: %v %v", id, leaf.DNSNames, leaf.IPAddresses)
	case leaf.IsCA:
		err = fmt.Errorf("the certificate of %s is that of an authority", id)
	}
	if err != nil {
		return Peer{}, refusal(byCertificate, "not a workload", "%w", err)
	}
	if domains := v.ledger.domains(); !slices.Contains(domains, id.TrustDomain) {
		return Peer{}, refusal(byCertificate, "trust domain", "%s is in none of the trust domains of this mesh: %s", id,
			strings.Join(domains, ", "))
	}
	return Peer{ID: id, Leaf: leaf, Fingerprint: Fingerprint(leaf)}, nil
}

// peerName returns the DNS name of a certificate if it is the only one, and one of package peername;
// else it is empty.
func peerName(leaf *x509.Certificate) string {
	if len(leaf.DNSNames) == 1 {
		if _, ok := peername.Parse(leaf.DNSNames[0]); ok {
			return leaf.DNSNames[0]
		}
	}
	return ""
}

// trusted returns why a chain does not lead to a trusted root. Errors: *Refusal.
func (v *PeerVerifier) trusted(chain []*x509.Certificate, now time.Time) error {
	if len(chain) > maxChain {
		return refusal(byCertificate, "long chain", "the chain has %d certificates, at most %d are read",
			len(chain), maxChain)
	}
	names := make(map[string]int, len(chain))
	for _, c := range chain {
		if names[string(c.RawSubject)]++; names[string(c.RawSubject)] > maxSameSubject {
			return refusal(byCertificate, "long chain", "the chain has more than %d certificates of one name",
				maxSameSubject)
		}
	}
	err := v.bundle().verify(chain, x509.ExtKeyUsageClientAuth, now)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return refusal(byCertificate, "expired", "%w", err)
	}
	return refusal(byCertificate, reasonUntrusted, "%w", err)
}

// checkValidity returns why a peer's certificate is not valid at a time, or is revoked. Errors: *Refusal.
func (v *PeerVerifier) checkValidity(p Peer, now time.Time) error {
	if now.Before(p.Leaf.NotBefore) || now.After(p.Leaf.NotAfter) {
		return refusal(byCertificate, "expired", "the certificate of %s is valid from %s to %s", p.ID,
			p.Leaf.NotBefore.Format(time.RFC3339), p.Leaf.NotAfter.Format(time.RFC3339))
	}
	return v.Revoked(p.ID, p.Fingerprint)
}

// Revoked returns why an identity, or the certificate with a fingerprint, is revoked, as far as this
// replica knows. Without a fingerprint, a token proved the identity. Errors: *Refusal.
func (v *PeerVerifier) Revoked(id spiffe.ID, fingerprint string) error {
	err := v.ledger.Revocations().refuse(id.String(), fingerprint)
	switch {
	case err == nil:
		return nil
	case fingerprint == "":
		return refusal(byJWT, reasonRevoked, "%w", err)
	}
	return refusal(byCertificate, reasonRevoked, "%w", err)
}

// attest authenticates a caller by its current certificate, for renewal: chain, validity and
// revocations. There is a grace time after the end, and before the beginning if the clock was set
// back. A key that the workload has replaced is refused. Errors: *Refusal, or why the certificate
// cannot be checked now.
func (v *PeerVerifier) attest(ctx context.Context, c Call) (*Proof, error) {
	at, grace := c.Now, v.ledger.config.Grace
	if end := c.Peer[0].NotAfter; at.After(end) && !at.After(end.Add(grace)) {
		at = end.Add(-time.Second) // verify the chain as of when it last was valid
	} else if begin := c.Peer[0].NotBefore; at.Before(begin) && at.After(begin.Add(-grace)) {
		at = begin // the clock was ahead when it was issued, and has been set back
	}
	p, err := v.Verify(c.Peer, at)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Reason == reasonUntrusted {
		p, err = v.issuedHere(ctx, c.Peer[0], at, err)
	}
	if err != nil {
		return nil, err
	}
	w, err := v.ledger.Holds(ctx, p.Leaf)
	if err != nil {
		return nil, err
	}
	id, err := v.ledger.identity(p.ID.Namespace, p.ID.ServiceAccount) // in today's trust domain
	if err != nil {
		return nil, refusal(byCertificate, "no identity", "%w", err)
	}
	caller := "workload " + w.Name
	if strings.Contains(w.Name, accountSign) { // a holder of the account's token can make many such workloads
		caller = accountCaller(id)
	}
	return &Proof{ID: id, How: byCertificate, Group: w.Group, Caller: caller, Leaf: p.Leaf, name: w.Name,
		from: c.From}, nil
}

// issuedHere accepts a certificate whose root is not trusted any more, if the index has its hash.
// It was issued here, and a thief of the root's key cannot make one that the index has. Otherwise
// it returns untrusted. Errors: *Refusal, or the store cannot be read.
func (v *PeerVerifier) issuedHere(ctx context.Context, leaf *x509.Certificate, at time.Time,
	untrusted error) (Peer, error) {
	p, err := v.named(leaf)
	if err != nil {
		return p, err
	}
	w, _, err := v.ledger.workloads.get(ctx, indexName(leaf, p.ID))
	if err == nil && !slices.ContainsFunc(w.Leaves, func(l admin.Leaf) bool { return l.SHA256 == p.Fingerprint }) {
		err = untrusted
	}
	if err != nil {
		return p, err
	}
	return p, v.checkValidity(p, at)
}

// ServerTLS configures TLS on port 15012. It asks for a client certificate and accepts any: a
// machine that joins has none, and a PeerVerifier checks it where an identity is needed. There are
// no session tickets, so each connection shows its certificate. TLS 1.2 is the least, as with
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
