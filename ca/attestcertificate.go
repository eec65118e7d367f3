package ca

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// certificateAttestor is its name.
const certificateAttestor = "certificate"

// CertificateAttestor proves who calls by the workload's own certificate, for renewal: also for a while after its end, for
// the ledger then still says whose key it is.
type CertificateAttestor struct {
	peers  *PeerVerifier
	ledger *Ledger
}

// NewCertificateAttestor makes one. Peers are verified as everywhere, but for the grace of the ledger.
func NewCertificateAttestor(peers *PeerVerifier, l *Ledger) *CertificateAttestor {
	return &CertificateAttestor{peers: peers, ledger: l}
}

// Name implements Attestor.
func (*CertificateAttestor) Name() string { return certificateAttestor }

// refuseCertificate is a refusal whose caller learns nothing.
func refuseCertificate(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicCertificate, Reason: reason, Err: err, Final: reason == "revoked"}
}

// Attest implements Attestor.
func (a *CertificateAttestor) Attest(ctx context.Context, c Call) (*Proof, error) {
	if len(c.Peer) == 0 {
		return nil, ErrNotMine
	}
	at := c.Now
	if end := c.Peer[0].NotAfter; at.After(end) && !at.After(end.Add(a.ledger.grace)) {
		at = end.Add(-time.Second) // the chain is judged by when it last was valid
	}
	p, err := a.peers.Verify(c.Peer, at)
	if err != nil {
		return nil, err
	}
	h, err := a.ledger.holds(ctx, p.Leaf)
	if err != nil {
		return nil, err
	}
	w := h.workload
	id, err := a.ledger.identity(p.ID.Namespace, p.ID.ServiceAccount) // in today's trust domain
	if err != nil {
		return nil, refuseCertificate("no identity", err)
	}
	proof := &Proof{ID: id, How: certificateAttestor, Group: w.Group, Caller: "workload " + w.Name, Leaf: p.Leaf, seen: &h}
	proof.Bind = func(_ context.Context, q Ask) (string, error) {
		if _, short, _ := strings.Cut(w.Name, "/"); q.Workload != "" && q.Workload != short {
			return "", refuseCertificate("other workload", fmt.Errorf("workload %s asks for a certificate of %.260q", w.Name, q.Workload))
		}
		return w.Name, nil
	}
	return proof, nil
}
