package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Reasons of refusals that others look at.
const reasonUntrusted, reasonRevoked = "untrusted", "revoked"

// refuseCertificate is a refusal whose caller learns nothing.
func refuseCertificate(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicCertificate, Reason: reason, Err: err}
}

// attest authenticates a caller by its current certificate, for renewal: chain, validity and
// revocations. There is a grace time after the end, and before the beginning if the clock was set
// back. A key that the workload has replaced is refused. Errors: *Refusal, or why the certificate
// cannot be checked now.
func (v *PeerVerifier) attest(ctx context.Context, c Call) (*Proof, error) {
	l, at := v.config.Ledger, c.Now
	if end := c.Peer[0].NotAfter; at.After(end) && !at.After(end.Add(l.grace)) {
		at = end.Add(-time.Second) // the chain is judged by when it last was valid
	} else if begin := c.Peer[0].NotBefore; at.Before(begin) && at.After(begin.Add(-l.grace)) {
		at = begin // the clock was ahead when it was issued, and has been set back
	}
	p, byIndex, err := v.verifyIssued(ctx, c.Peer, at)
	if err != nil {
		return nil, err
	}
	w, err := l.Holds(ctx, p.Leaf)
	if err != nil {
		return nil, err
	}
	id, err := l.identity(p.ID.Namespace, p.ID.ServiceAccount) // in today's trust domain
	if err != nil {
		return nil, refuseCertificate("no identity", err)
	}
	caller := "workload " + w.Name
	if strings.Contains(w.Name, accountSign) { // whoever has a token of the account can make many such workloads
		caller = accountCaller(id)
	}
	return &Proof{ID: id, How: byCertificate, Group: w.Group, Caller: caller, Leaf: p.Leaf, name: w.Name, byIndex: byIndex,
		from: c.From}, nil
}

// verifyIssued is Verify, and accepts a certificate whose root is trusted no longer too when the
// index has it by its hash: it was issued here, and who stole the root's key can make none that the
// index has. byIndex says that it did. Errors: *Refusal, or why it cannot be told now.
func (v *PeerVerifier) verifyIssued(ctx context.Context, chain []*x509.Certificate, at time.Time) (p Peer, byIndex bool,
	err error) {
	p, err = v.Verify(chain, at)
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != reasonUntrusted {
		return p, false, err
	}
	untrusted := err
	if p, err = v.named(chain[0]); err != nil {
		return p, false, err
	}
	w, _, err := v.config.Ledger.workload(ctx, indexName(p.Leaf, p.ID))
	if err != nil {
		return p, false, err
	}
	if !slices.ContainsFunc(w.Leaves, func(l Leaf) bool { return l.SHA256 == p.Fingerprint }) {
		return p, false, untrusted
	}
	return p, true, v.good(p, at)
}
