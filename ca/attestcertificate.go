package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// certificateAttestor is its name.
const certificateAttestor = "certificate"

// CertificateAttestor proves who calls by the workload's own certificate, for renewal: by its chain,
// its times and what is revoked, with a grace after its end, and before its begin when the clock was
// set back. A key that the workload has replaced since is refused.
//
// A certificate whose root is trusted no longer renews too when the index has it by its hash: it was
// issued here, and who stole the root's key can make none that the index has.
type CertificateAttestor struct {
	peers  *PeerVerifier
	ledger *Ledger
}

// NewCertificateAttestor makes one. Peers are verified as everywhere, but for the grace of the
// ledger and what it has issued.
func NewCertificateAttestor(peers *PeerVerifier, l *Ledger) *CertificateAttestor {
	return &CertificateAttestor{peers: peers, ledger: l}
}

// Name implements Attestor.
func (*CertificateAttestor) Name() string { return certificateAttestor }

// Reasons of refusals that others look at.
const reasonUntrusted, reasonRevoked = "untrusted", "revoked"

// refuseCertificate is a refusal whose caller learns nothing.
func refuseCertificate(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicCertificate, Reason: reason, Err: err,
		Final: reason == reasonRevoked}
}

// Attest implements Attestor.
func (a *CertificateAttestor) Attest(ctx context.Context, c Call) (*Proof, error) {
	if len(c.Peer) == 0 {
		return nil, ErrNotMine
	}
	at := c.Now
	if end := c.Peer[0].NotAfter; at.After(end) && !at.After(end.Add(a.ledger.grace)) {
		at = end.Add(-time.Second) // the chain is judged by when it last was valid
	} else if begin := c.Peer[0].NotBefore; at.Before(begin) && at.After(begin.Add(-a.ledger.grace)) {
		at = begin // the clock was ahead when it was issued, and has been set back
	}
	p, by, err := a.verify(ctx, c.Peer, at)
	if err != nil {
		return nil, err
	}
	w, err := a.ledger.Holds(ctx, p.Leaf)
	if err != nil {
		return nil, err
	}
	id, err := a.ledger.identity(p.ID.Namespace, p.ID.ServiceAccount) // in today's trust domain
	if err != nil {
		return nil, refuseCertificate("no identity", err)
	}
	caller := "workload " + w.Name
	if strings.Contains(w.Name, accountSign) { // whoever has a token of the account can make many such workloads
		caller = accountCaller(id)
	}
	proof := &Proof{ID: id, How: certificateAttestor, Group: w.Group, Caller: caller, Leaf: p.Leaf, by: by, from: c.From}
	proof.Name = func(q Ask) (string, error) {
		if _, short, _ := strings.Cut(w.Name, "/"); q.Workload != "" && q.Workload != short {
			return "", refuseCertificate("other workload", fmt.Errorf("workload %s asks for a certificate of %.260q",
				w.Name, q.Workload))
		}
		return w.Name, nil
	}
	return proof, nil
}

// The words of the audit log for what a certificate was accepted by: its chain leads to a trusted
// root, or the index has it.
const byChain, byIndex = "chain", "index"

// verify returns whose a chain is, and what it was accepted by. Errors: *Refusal, or why it cannot
// be told now.
func (a *CertificateAttestor) verify(ctx context.Context, chain []*x509.Certificate, at time.Time) (p Peer, by string,
	err error) {
	p, err = a.peers.Verify(chain, at)
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != reasonUntrusted {
		return p, byChain, err
	}
	untrusted := err
	if p, err = a.peers.unchained(chain[0], at); err != nil {
		return p, "", err
	}
	w, _, err := a.ledger.workload(ctx, indexName(p.Leaf, p.ID))
	if err != nil {
		return p, "", err
	}
	if !slices.ContainsFunc(w.Leaves, func(l Leaf) bool { return l.SHA256 == p.Fingerprint }) {
		return p, "", untrusted
	}
	return p, byIndex, nil
}
