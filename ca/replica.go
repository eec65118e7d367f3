package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// replicaTokenPrefix begins every replica token, so that scanners for secrets can find it.
const replicaTokenPrefix = "ashore-replica."

// usedTokens is where used replica tokens are stored, by their IDs.
const usedTokens = "replica-token/"

// MaxReplicaTokenTTL is how long a replica token may live.
const MaxReplicaTokenTTL = 24 * time.Hour

// ErrReplicaToken is why no replica token is made: it is the caller's fault.
var ErrReplicaToken = errors.New("cannot make a replica token")

// Replica is another replica that is alive.
type Replica struct {
	// Name is for operators: "mesh-2 (10.0.0.2:15012)".
	Name string
	// Address is where other replicas reach it, "10.0.0.2:15012".
	Address string
}

// replicaToken lets its holder have one intermediate. The root's key signs it, so the replica that
// has the key recognises its own tokens, and nobody who can write to the store can make one.
type replicaToken struct {
	ID string `json:"id"`
	// Root is the ID of the root that signs: the holder accepts no other control plane.
	Root string `json:"root"`
	// Address is where the replica with the root's key is reached.
	Address string    `json:"address"`
	Expires time.Time `json:"expires"`
}

// usedToken is the record of a replica token that was used.
type usedToken struct {
	Format  int       `json:"v"`
	Expires time.Time `json:"expires"`
}

// encode is the text of a token: its content and the signature of the root's key.
func (t replicaToken) encode(key crypto.Signer) (string, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(replicaTokenPrefix), body...))
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSigner, err)
	}
	e := base64.RawURLEncoding
	return replicaTokenPrefix + e.EncodeToString(body) + "." + e.EncodeToString(sig), nil
}

// decodeReplicaToken reads a token. Its signature is not verified. Errors hold nothing of it.
func decodeReplicaToken(text string) (t replicaToken, body, sig []byte, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), replicaTokenPrefix)
	first, second, _ := strings.Cut(rest, ".")
	e := base64.RawURLEncoding.Strict()
	body, err = e.DecodeString(first)
	if err == nil {
		sig, err = e.DecodeString(second)
	}
	if !ok || err != nil || json.Unmarshal(body, &t) != nil || t.ID == "" || len(text) > 4<<10 {
		return t, nil, nil, errors.New("it does not have the form of a replica token: a part is missing or mistyped")
	}
	return t, body, sig, nil
}

// CreateReplicaToken makes a token for one more replica. The text is nowhere but in the answer.
// Errors: ErrReplicaToken.
func (m *Manager) CreateReplicaToken(ttl time.Duration, by string) (text string, expires time.Time,
	err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.own == nil:
		return "", expires, fmt.Errorf("%w: the authority is plugged in: give the new replica a folder of four files "+
			"below the same root (setting ca.plugged)", ErrReplicaToken)
	case m.config.Address == "":
		return "", expires, fmt.Errorf("%w: this ashored keeps its state on this machine alone: replicas share a "+
			"store (setting store, kind consul)", ErrReplicaToken)
	}
	pair, err := m.own.activeKey()
	if err != nil {
		return "", expires, fmt.Errorf("%w here: make it on the replica that has the root's key: %w", ErrReplicaToken, err)
	}
	id := make([]byte, tokenID)
	if _, err := rand.Read(id); err != nil {
		return "", expires, err
	}
	t := replicaToken{ID: idEncoding().EncodeToString(id), Root: RootID(pair.cert), Address: m.config.Address,
		Expires: m.config.Now().Add(ttl).UTC().Truncate(time.Second)}
	if text, err = t.encode(pair.key); err != nil {
		return "", expires, err
	}
	m.config.Audit(audit.Event{Action: audit.ReplicaToken, Actor: by, Target: t.ID,
		Details: map[string]string{"expires": t.Expires.Format(time.RFC3339)}})
	return text, t.Expires, nil
}

// refuseReplica is a refusal that another replica may know the reason of.
func refuseReplica(code codes.Code, reason string, err error) *Refusal {
	return &Refusal{Code: code, Public: err.Error(), Reason: "replica " + reason, Err: err}
}

// attestReplica proves that a call comes from a replica: by its control plane's certificate, or by
// a replica token. Errors: *Refusal.
func (m *Manager) attestReplica(_ context.Context, c Call) (*Proof, error) {
	who := ControlPlaneID(m.config.TrustDomain).String()
	if !strings.HasPrefix(c.Bearer, replicaTokenPrefix) {
		err := verifyControlPlane(c.Peer, m.Bundle(), m.config.TrustDomain, x509.ExtKeyUsageClientAuth, c.Now)
		if err != nil {
			return nil, refuseReplica(codes.Unauthenticated, "untrusted",
				fmt.Errorf("the certificate of the replica is not accepted: %w; use a new replica token", err))
		}
		return &Proof{How: byReplica, Caller: who, from: c.From}, nil
	}
	t, body, sig, err := decodeReplicaToken(c.Bearer)
	if err != nil {
		return nil, refuseReplica(codes.Unauthenticated, "token malformed", err)
	}
	m.mu.Lock()
	pair, err := m.activeKey()
	m.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case pair.cert.CheckSignature(x509.ECDSAWithSHA256, append([]byte(replicaTokenPrefix), body...), sig) != nil:
		return nil, refuseReplica(codes.Unauthenticated, "token untrusted",
			errors.New("the replica token is not signed by the root: it is mistyped, of another mesh, or older than a rotation"))
	case !c.Now.Before(t.Expires):
		return nil, refuseReplica(codes.Unauthenticated, "token expired",
			fmt.Errorf("the replica token ended at %s", t.Expires.Format(time.RFC3339)))
	}
	return &Proof{How: byReplica, Caller: "replica token " + t.ID, token: c.Bearer, from: c.From}, nil
}

// activeKey is the key of the root that signs. Errors: *Refusal. The caller holds mu.
func (m *Manager) activeKey() (*pair, error) {
	err := errors.New("the authority is plugged in")
	if m.own != nil {
		var p *pair
		if p, err = m.own.activeKey(); err == nil {
			return p, nil
		}
	}
	return nil, refuseReplica(codes.FailedPrecondition, "no root key", fmt.Errorf("this replica does not have the "+
		"root's key: %w", err))
}

// issueIntermediate signs an intermediate for another replica. A token is used up by it. Errors:
// *Refusal, or why it cannot be told now.
func (m *Manager) issueIntermediate(ctx context.Context, p *Proof, r *Request, now time.Time) (*x509.Certificate,
	error) {
	m.mu.Lock()
	pair, err := m.activeKey()
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if p.token != "" {
		if err := m.useToken(ctx, p); err != nil {
			return nil, err
		}
	}
	cert, err := pair.intermediate(m.config.TrustDomain, r.Key, now)
	if err != nil {
		return nil, err
	}
	m.config.Log.Info("issued an intermediate to another replica", "from", p.from, "root", RootID(pair.cert),
		"serial", serialText(cert), "ends", cert.NotAfter)
	m.config.Audit(audit.Event{Action: audit.ReplicaIssue, Actor: p.Caller, Target: p.from.String(),
		Details: map[string]string{"root": RootID(pair.cert), "serial": serialText(cert),
			"notAfter": cert.NotAfter.Format(time.RFC3339), "key": hex.EncodeToString(r.KeyHash[:])}})
	return cert, nil
}

// useToken uses a replica token up. Errors: *Refusal.
func (m *Manager) useToken(ctx context.Context, p *Proof) error {
	t, _, _, err := decodeReplicaToken(p.token)
	if err != nil {
		return err
	}
	value, err := json.Marshal(usedToken{Format: 1, Expires: t.Expires})
	if err != nil {
		return err
	}
	key := record.Key{Table: table, Name: usedTokens + t.ID}
	err = m.config.Records.Commit(ctx, record.Write{Key: key, Value: value})
	if errors.Is(err, record.ErrConflict) {
		return refuseReplica(codes.PermissionDenied, "token used",
			errors.New("the replica token was used: make a new one"))
	}
	return err
}
