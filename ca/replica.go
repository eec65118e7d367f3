package ca

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
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

// replicaToken lets its holder have one intermediate. It is a JWT that the root's key signs, so
// nobody who can write to the store can make one.
type replicaToken struct {
	ID string `json:"jti"`
	// Root is the ID of the root that signs: the holder accepts no other control plane.
	Root string `json:"root"`
	// Address is where to connect to the replica that has the root's key.
	Address string           `json:"address"`
	Expires *jwt.NumericDate `json:"exp"`
}

// usedToken is the record of a replica token that was used.
type usedToken struct {
	Expires time.Time `json:"expires"`
}

// usedTokens are the replica tokens that were used, by their IDs.
func usedTokens(s record.Store) recordTable[usedToken] {
	return recordTable[usedToken]{store: s, name: "replica-token"}
}

// encode is the text of a token, signed by the root's key. Errors: ErrSigner.
func (t replicaToken) encode(key crypto.Signer) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	text := ""
	if err == nil {
		text, err = jwt.Signed(signer).Claims(t).Serialize()
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSigner, err)
	}
	return replicaTokenPrefix + text, nil
}

// parseReplicaToken reads a token. Its signature is not verified. Errors hold nothing of it.
func parseReplicaToken(text string) (signed *jwt.JSONWebToken, t replicaToken, err error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(text), replicaTokenPrefix)
	signed, err = jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err == nil {
		err = signed.UnsafeClaimsWithoutVerification(&t)
	}
	if !ok || err != nil || t.ID == "" || t.Expires == nil {
		return nil, t, errors.New("it does not have the form of a replica token: a part is missing or mistyped")
	}
	return signed, t, nil
}

// CreateReplicaToken makes a token for one more replica. The text is nowhere but in the answer.
// Errors: ErrReplicaToken.
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
		return "", expires, fmt.Errorf("%w here: make it on the replica that has the root's key: %w", ErrReplicaToken, err)
	}
	expires = m.config.Now().Add(ttl).UTC().Truncate(time.Second)
	t := replicaToken{ID: newTokenID(), Root: RootID(pair.cert), Address: m.config.Address,
		Expires: jwt.NewNumericDate(expires)}
	if text, err = t.encode(pair.key); err != nil {
		return "", expires, err
	}
	m.config.Audit(audit.Event{Action: audit.ReplicaToken, Actor: by, Target: t.ID,
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
	signed, t, err := parseReplicaToken(c.Bearer)
	if err != nil {
		return nil, refuseReplica(codes.Unauthenticated, "token malformed", "%w", err)
	}
	pair, err := m.activeKey()
	switch {
	case err != nil:
		return nil, refuseNoKey(err)
	case signed.Claims(pair.key.Public(), &t) != nil:
		return nil, refuseReplica(codes.Unauthenticated, "token untrusted",
			"the replica token is not signed by the root: it is mistyped, of another mesh, or older than a rotation")
	case !c.Now.Before(t.Expires.Time()):
		return nil, refuseReplica(codes.Unauthenticated, "token expired", "the replica token expired at %s",
			t.Expires.Time().UTC().Format(time.RFC3339))
	}
	return &Proof{How: byReplica, Caller: "replica token " + t.ID, replica: &t, from: c.From}, nil
}

func refuseNoKey(err error) *Refusal {
	return refuseReplica(codes.FailedPrecondition, "no root key", "this replica does not have the root's key: %w", err)
}

// answerReplica issues an intermediate to another replica, and uses up its token.
func (m *Manager) answerReplica(ctx context.Context, c Call, p *Proof, raw []byte) ([]string, error) {
	ask, err := parseAsk(raw)
	if err != nil {
		return nil, err
	}
	pair, err := m.activeKey()
	if err != nil {
		return nil, refuseNoKey(err)
	}
	cert, err := pair.intermediate(m.config.TrustDomain, ask.Key, c.Now)
	if err != nil {
		return nil, err
	}
	if t := p.replica; t != nil {
		err := usedTokens(m.config.Records).commit(ctx, t.ID, usedToken{t.Expires.Time()}, "")
		if errors.Is(err, record.ErrConflict) {
			return nil, refuseReplica(codes.PermissionDenied, "token used",
				"the replica token was used: make a new one")
		}
		if err != nil {
			return nil, err
		}
	}
	m.config.Log.Info("issued an intermediate to another replica", "from", p.from, "root", RootID(pair.cert),
		"serial", serialText(cert), "expires", cert.NotAfter)
	m.config.Audit(audit.Event{Action: audit.ReplicaIssue, Actor: p.Caller, Target: p.from.String(),
		Details: map[string]string{"root": RootID(pair.cert), "serial": serialText(cert),
			"notAfter": cert.NotAfter.Format(time.RFC3339), "key": ask.KeyHash}})
	return []string{string(EncodeCertificates(cert))}, nil
}
