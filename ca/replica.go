package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

const (
	// replicaService and replicaMethod are the call for an intermediate. Its messages are Istio's.
	replicaService, replicaMethod = "ashore.ca.v1.Replicas", "CreateIntermediate"
	// firstLife is how long the first intermediate of a replica lives. The replica requests another
	// one, for a key of its own, when it has started.
	firstLife = 24 * time.Hour
)

// ErrReplica is why no intermediate is made for a replica: it is the caller's fault.
var ErrReplica = errors.New("cannot make an intermediate for another replica")

// CreateIntermediate makes the first intermediate of one more replica: key and certificate as PEM,
// for the folder of its keys. It is nowhere but in the answer. Errors: ErrReplica.
func (m *Manager) CreateIntermediate(by string) ([]byte, error) {
	switch {
	case m.own == nil:
		return nil, fmt.Errorf("%w: the authority is plugged in: give the new replica a folder of four files below the "+
			"same root (setting ca.plugged)", ErrReplica)
	case m.config.Address == "":
		return nil, fmt.Errorf("%w: this ashored keeps its state on this machine alone: replicas share a store (setting "+
			"store, kind consul)", ErrReplica)
	}
	root, err := m.activeKey()
	if err != nil {
		return nil, fmt.Errorf("%w here: make it on the replica that has the root's key: %w", ErrReplica, err)
	}
	p := &pair{key: NewKey()}
	if p.cert, err = root.intermediate(m.config.TrustDomain, p.key.Public(), firstLife, m.config.Now()); err != nil {
		return nil, err
	}
	m.recordIntermediate(by, "another replica", root.cert, p.cert)
	return p.encode()
}

// activeKey is the key of the root that signs.
func (m *Manager) activeKey() (*pair, error) {
	if m.own == nil {
		return nil, errors.New("the authority is plugged in")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own.activeKey()
}

// refuseReplica is a refusal whose caller, another replica, learns the reason.
func refuseReplica(code codes.Code, reason, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{Code: code, Public: err.Error(), Reason: "replica " + reason, Err: err}
}

// attestReplica proves by its control plane's certificate that a call comes from a replica. Errors:
// *Refusal.
func (m *Manager) attestReplica(_ context.Context, c Call) (*Proof, error) {
	err := verifyControlPlane(c.Peer, m.Bundle(), m.config.TrustDomain, x509.ExtKeyUsageClientAuth, c.Now)
	if err != nil {
		return nil, refuseReplica(codes.Unauthenticated, "untrusted",
			"the certificate of the replica is not accepted: %w; give it a new intermediate (\"ashorectl ca intermediate\")", err)
	}
	return &Proof{How: byReplica, Caller: ControlPlaneID(m.config.TrustDomain).String(), from: c.From}, nil
}

// answerReplica issues an intermediate to another replica.
func (m *Manager) answerReplica(_ context.Context, c Call, p *Proof, raw []byte) ([]string, error) {
	ask, err := parseAsk(raw)
	if err != nil {
		return nil, err
	}
	root, err := m.activeKey()
	if err != nil {
		return nil, refuseReplica(codes.FailedPrecondition, "no root key", "this replica does not have the root's key: %w",
			err)
	}
	cert, err := root.intermediate(m.config.TrustDomain, ask.Key, intermediateLife, c.Now)
	if err != nil {
		return nil, err
	}
	m.recordIntermediate(p.Caller, p.from.String(), root.cert, cert)
	return []string{string(EncodeCertificates(cert))}, nil
}

// recordIntermediate logs an intermediate of another replica, also in the audit log.
func (m *Manager) recordIntermediate(actor, target string, root, cert *x509.Certificate) {
	m.config.Log.Info("issued an intermediate to another replica", "to", target, "root", RootID(root),
		"serial", serialText(cert), "expires", cert.NotAfter)
	m.config.Audit(audit.Event{Action: audit.ReplicaIssue, Actor: actor, Target: target,
		Details: map[string]string{"root": RootID(root), "serial": serialText(cert),
			"notAfter": cert.NotAfter.Format(time.RFC3339)}})
}
