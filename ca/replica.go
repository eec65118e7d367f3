package ca

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

const (
	// replicaTokenPrefix begins every replica token, so that scanners for secrets can find it.
	replicaTokenPrefix = "ashore-replica."
	// replicaService and replicaMethod are the call for an intermediate. Its messages are Istio's.
	replicaService, replicaMethod = "ashore.ca.v1.Replicas", "CreateIntermediate"
	// MaxReplicaTokenTTL is how long a replica token may live.
	MaxReplicaTokenTTL = 24 * time.Hour
)

// ErrReplicaToken is why no replica token is made: it is the caller's fault.
var ErrReplicaToken = errors.New("cannot make a replica token")

// issuedToken is a replica token that this process made. Its holder gets one intermediate.
type issuedToken struct {
	id      string
	expires time.Time
}

// newReplicaToken returns the text of a token, and its ID. The text names the root, so that its holder
// accepts no other control plane, and where to connect.
func newReplicaToken(root, address string) (text, id string) {
	id = newTokenID()
	return replicaTokenPrefix + id + "." + rand.Text() + "@" + root + "@" + address, id
}

// parseReplicaToken returns the root and the address in a token. Errors hold nothing of it.
func parseReplicaToken(text string) (root, address string, err error) {
	parts := strings.Split(text, "@")
	if len(parts) != 3 || !strings.HasPrefix(text, replicaTokenPrefix) {
		return "", "", errors.New("it does not have the form of a replica token: a part is missing or mistyped")
	}
	return parts[1], parts[2], nil
}

// CreateReplicaToken makes a token for one more replica, which this process accepts once. The text is
// nowhere but in the answer. Errors: ErrReplicaToken.
func (m *Manager) CreateReplicaToken(ttl time.Duration, by string) (text string, expires time.Time,
	err error) {
	switch {
	case m.own == nil:
		return "", expires, fmt.Errorf("%w: the authority is plugged in: give the new replica a folder of four files "+
			"below the same root (setting ca.plugged)", ErrReplicaToken)
	case m.config.Address == "":
		return "", expires, fmt.Errorf("%w: this ashored keeps its state on this machine alone: replicas share a "+
			"store (setting store, kind consul)", ErrReplicaToken)
	}
	pair, err := m.activeKey()
	if err != nil {
		return "", expires, fmt.Errorf("%w here: make it on the replica that has the root's key: %w",
			ErrReplicaToken, err)
	}
	expires = m.config.Now().Add(ttl).UTC().Truncate(time.Second)
	text, id := newReplicaToken(RootID(pair.cert), m.config.Address)
	m.tokens.Store(hexSum([]byte(text)), issuedToken{id, expires})
	m.config.Audit(audit.Event{Action: audit.ReplicaToken, Actor: by, Target: id,
		Details: map[string]string{"expires": expires.Format(time.RFC3339)}})
	return text, expires, nil
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

// attestReplica proves that a call comes from a replica: by its control plane's certificate, or by
// a replica token. Errors: *Refusal.
func (m *Manager) attestReplica(_ context.Context, c Call) (*Proof, error) {
	if !strings.HasPrefix(c.Bearer, replicaTokenPrefix) {
		err := verifyControlPlane(c.Peer, m.Bundle(), m.config.TrustDomain, x509.ExtKeyUsageClientAuth, c.Now)
		if err != nil {
			return nil, refuseReplica(codes.Unauthenticated, "untrusted",
				"the certificate of the replica is not accepted: %w; use a new replica token", err)
		}
		return &Proof{How: byReplica, Caller: ControlPlaneID(m.config.TrustDomain).String(), from: c.From}, nil
	}
	found, ok := m.tokens.Load(hexSum([]byte(c.Bearer)))
	t, _ := found.(issuedToken)
	switch {
	case !ok:
		return nil, refuseReplica(codes.Unauthenticated, "token unknown", "this control plane does not know the "+
			"replica token: it was used, is mistyped, or ashored has restarted since it was made; make a new one")
	case !c.Now.Before(t.expires):
		return nil, refuseReplica(codes.Unauthenticated, "token expired", "the replica token expired at %s",
			t.expires.Format(time.RFC3339))
	}
	return &Proof{How: byReplica, Caller: "replica token " + t.id, token: c.Bearer, from: c.From}, nil
}

// answerReplica issues an intermediate to another replica, and uses up its token.
func (m *Manager) answerReplica(_ context.Context, c Call, p *Proof, raw []byte) ([]string, error) {
	ask, err := parseAsk(raw)
	if err != nil {
		return nil, err
	}
	pair, err := m.activeKey()
	if err != nil {
		return nil, refuseReplica(codes.FailedPrecondition, "no root key",
			"this replica does not have the root's key: %w", err)
	}
	cert, err := pair.intermediate(m.config.TrustDomain, ask.Key, c.Now)
	if err != nil {
		return nil, err
	}
	if p.token != "" {
		if _, unused := m.tokens.LoadAndDelete(hexSum([]byte(p.token))); !unused {
			return nil, refuseReplica(codes.PermissionDenied, "token used",
				"the replica token was used: make a new one")
		}
	}
	m.config.Log.Info("issued an intermediate to another replica", "from", p.from, "root", RootID(pair.cert),
		"serial", serialText(cert), "expires", cert.NotAfter)
	m.config.Audit(audit.Event{Action: audit.ReplicaIssue, Actor: p.Caller, Target: p.from.String(),
		Details: map[string]string{"root": RootID(pair.cert), "serial": serialText(cert),
			"notAfter": cert.NotAfter.Format(time.RFC3339), "key": ask.KeyHash}})
	return []string{string(EncodeCertificates(cert))}, nil
}
