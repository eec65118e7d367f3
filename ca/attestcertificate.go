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

// CertificateAttestor proves who calls by the workload's own certificate, for renewal: also for a
// while after its end, and before its begin after the clock was set back, for the ledger then still
// says whose key it is. A certificate whose root is trusted no longer renews too, when the ledger
// has it by its hash: it was issued here, and who has the root's key can make none that the ledger
// has.
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
	p, h, by, err := a.prove(ctx, c.Peer, at)
	if err != nil {
		return nil, err
	}
	w := h.workload
	id, err := a.ledger.identity(p.ID.Namespace, p.ID.ServiceAccount) // in today's trust domain
	if err != nil {
		return nil, refuseCertificate("no identity", err)
	}
	caller := "workload " + w.Name
	if strings.Contains(w.Name, accountSign) { // whoever has a token of the account can make many such workloads
		caller = accountCaller(id)
	}
	proof := &Proof{ID: id, How: certificateAttestor, Group: w.Group, Caller: caller, Leaf: p.Leaf, by: by, seen: &h}
	proof.Bind = func(_ context.Context, q Ask) (string, error) {
		if _, short, _ := strings.Cut(w.Name, "/"); q.Workload != "" && q.Workload != short {
			return "", refuseCertificate("other workload", fmt.Errorf("workload %s asks for a certificate of %.260q",
				w.Name, q.Workload))
		}
		return w.Name, nil
	}
	return proof, nil
}

// The words of the audit log for what a certificate was believed by: that it leads to a root which
// is trusted, or that the ledger has it.
const byChain, byLedger = "chain", "ledger"

// prove is whose a chain is, as the ledger has that workload, and what it was believed by. Errors:
// *Refusal, or why it cannot be told now.
func (a *CertificateAttestor) prove(ctx context.Context, chain []*x509.Certificate, at time.Time) (p Peer, h held,
	by string, err error) {
	by = byChain
	p, err = a.peers.Verify(chain, at)
	untrusted, ok := errors.AsType[*Refusal](err)
	switch {
	case err == nil:
	case ok && untrusted.Reason == reasonUntrusted:
		by = byLedger
		if p, err = a.peers.unchained(chain[0], at); err != nil {
			return p, h, by, err
		}
	default:
		return p, h, by, err
	}
	h, err = a.ledger.holds(ctx, p.Leaf)
	if by == byLedger {
		err = disowned(h.workload, p, untrusted, err)
	}
	return p, h, by, err
}

// disowned is why the ledger's word does not stand for the chain of a certificate that leads to no
// trusted root; err is why its key does not renew. That it is revoked is said as such, all else as
// what is wrong with the chain. Errors: *Refusal, or why it cannot be told now.
func disowned(w Workload, p Peer, untrusted *Refusal, err error) error {
	if r, ok := errors.AsType[*Refusal](err); err != nil && (!ok || r.Reason == reasonRevoked) {
		return err
	}
	if err == nil {
		i := slices.IndexFunc(w.Leaves, func(l Leaf) bool { return l.SHA256 == p.Fingerprint })
		switch {
		case i < 0:
			err = fmt.Errorf("workload %s was not issued the certificate with the hash %s", w.Name, p.Fingerprint)
		case w.Leaves[i].Revoked:
			return refuseCertificate(reasonRevoked, fmt.Errorf("certificate %s of workload %s is revoked",
				w.Leaves[i].Serial, w.Name))
		default:
			return nil
		}
	}
	return refuseCertificate(untrusted.Reason, fmt.Errorf("%w; and the ledger does not know it: %w", untrusted.Err,
		err))
}
