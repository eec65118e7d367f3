package ca

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// KeyHash is the SHA-256 of the SubjectPublicKeyInfo of a public key.
type KeyHash [sha256.Size]byte

// KeyHashOf is the hash of a certificate's key.
func KeyHashOf(c *x509.Certificate) KeyHash { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// String is the hash as hexadecimal digits.
func (k KeyHash) String() string { return hex.EncodeToString(k[:]) }

// Call is what is known of a call before anything that it sends is read.
type Call struct {
	// Peer is the client's chain of the TLS connection, leaf first. That the client has the leaf's
	// key is proven; nothing else is.
	Peer []*x509.Certificate
	// Bearer is the bearer token of the call, or empty.
	Bearer string
	// From is the address that the call comes from.
	From netip.Addr
	// Now is when it came.
	Now time.Time
}

// Ask is what a proven caller asks a certificate for.
type Ask struct {
	// Key is the hash of the key that it is for. The caller has the key.
	Key KeyHash
	// Workload is how the caller names itself within its namespace, or empty.
	Workload string
	// Group is the WorkloadGroup that the caller means to join, "namespace/name", or empty when he
	// does not say.
	Group string
	// Replace says that the caller means to take the place of a workload of his name that is alive.
	Replace bool
}

// Proof is who a call comes from.
type Proof struct {
	// ID is the identity.
	ID spiffe.ID
	// How is the name of the attestor.
	How string
	// Group is the WorkloadGroup that the caller joins, "namespace/name", or empty.
	Group string
	// Caller is what calls are counted by: one for each token, workload or service account.
	Caller string
	// Leaf is the certificate that it was proven by, or nil.
	Leaf *x509.Certificate
	// by is what Leaf was believed by, for the audit log: "chain" or "ledger".
	by string
	// token is the text of the join token that it was proven by, or empty.
	token string
	// shown is the hash of the key of the certificate that a caller with other evidence presents as
	// well; nil: none. Its owner is not checked.
	shown *KeyHash
	// from is the address that the call comes from.
	from netip.Addr
	// Name says which workload the certificate is for, "namespace/name". Errors: *Refusal.
	Name func(a Ask) (workload string, err error)
}

// Attestor proves who a call comes from by one kind of evidence. Safe for concurrent use.
type Attestor interface {
	// Name is "token", "certificate" or "jwt".
	Name() string
	// Attest proves who calls. It changes nothing. Errors: ErrNotMine, *Refusal, or why it cannot
	// be told now.
	Attest(ctx context.Context, c Call) (*Proof, error)
}

// ErrNotMine says that a call holds no evidence of an attestor's kind.
var ErrNotMine = errors.New("the call holds no such evidence")

// Refusal is why a call is refused: what its caller is told, and what only the operator is.
type Refusal struct {
	// Code and Public are for the caller.
	Code   codes.Code
	Public string
	// Reason is one word or two, for metrics: "expired".
	Reason string
	// Err is all that is known, for the audit log.
	Err error
	// Final says that no other evidence of the same call counts.
	Final bool
}

// Error is all that is known.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %v", r.Reason, r.Err) }

// Unwrap is the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// What callers are told. Why exactly stands in the audit log: whoever guesses shall not learn how
// near he is.
const (
	publicToken = "the join token is not accepted: it may be used, expired, revoked, mistyped or for another " +
		"group; make a new one on the control plane: ashorectl join-token create --group NAMESPACE/NAME"
	publicCertificate = "the client certificate is not accepted: it may be expired, revoked, replaced or of " +
		"another mesh; join again with a new line of \"ashorectl join-token create\""
	publicJWT = "the token is not accepted: it may be expired, or of an issuer or audience that is not " +
		"trusted here"
	publicBehind = "this control plane is out of touch with the store that it shares: try again, or ask another one"
	publicNobody = "no proof of identity was given: send a join token, a certificate of this mesh, or a token " +
		"of a trusted issuer"
)

// attest asks attestors in their order. One that refuses leaves the word to the next, unless it is
// final: Istio's agents send what they have, an old certificate among it.
func attest(ctx context.Context, attestors []Attestor, c Call) (*Proof, error) {
	var first error
	for _, a := range attestors {
		p, err := a.Attest(ctx, c)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, ErrNotMine) {
			continue
		}
		r, ok := errors.AsType[*Refusal](err)
		if ok && r.Final {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, &Refusal{Code: codes.Unauthenticated, Public: publicNobody, Reason: "no proof", Err: ErrNotMine}
}
