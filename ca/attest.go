package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// keyHash is the SHA-256 of the SubjectPublicKeyInfo of a certificate's key, in hexadecimal digits.
func keyHash(c *x509.Certificate) string { return hexSum(c.RawSubjectPublicKeyInfo) }

// Call is what is known of a call before its request is received.
type Call struct {
	// Peer is the client's chain of the TLS connection, leaf first. Only that the client has the
	// leaf's key is proven.
	Peer []*x509.Certificate
	// Bearer is the bearer token of the call, or empty.
	Bearer string
	// Cluster is the ID of the cluster that the caller names, or empty. Nothing proves it.
	Cluster string
	// From is the client's address.
	From netip.Addr
	// Now is when it came.
	Now time.Time
}

// Proof is who a call comes from.
type Proof struct {
	// ID is the identity.
	ID spiffe.ID
	// How it was proven: byToken, byCertificate, byJWT, byReview or byReplica.
	How string
	// Group is the WorkloadGroup that the caller joins, "namespace/name", or empty.
	Group string
	// Caller is what calls are counted by: one for each token, workload or service account.
	Caller string
	// Leaf is the certificate that proved it, or nil.
	Leaf *x509.Certificate
	// name is the workload, "namespace/name", that Leaf names.
	name string
	// token is the text of the join token or replica token that proved it, or empty.
	token string
	// shown is the hash of the key of the certificate that a caller with a token presents as well, or
	// empty. Its identity is not checked.
	shown string
	// from is the client's address.
	from netip.Addr
}

// The values of Proof.How.
const (
	byToken       = "token"
	byCertificate = "certificate"
	byJWT         = "jwt"
	byReview      = "kubernetes"
	byReplica     = "replica"
)

// workload returns the name, "namespace/name", of the workload that a certificate is for. Errors:
// *Refusal.
func (p *Proof) workload(a *ask) (string, error) {
	asked := p.ID.Namespace + "/" + a.Workload
	_, byKey := keyNamedAccount(p.name) // whatever name its agent knows
	switch {
	case p.How == byToken && a.Group != "" && a.Group != p.Group:
		return "", refusal(byToken, "token of another group", "the %s is of group %q, and comes for %.200q", p.Caller,
			p.Group, a.Group)
	case p.How == byToken && !dnsname.Valid(a.Workload):
		return "", &Refusal{Code: codes.InvalidArgument, Reason: "bad name",
			Err: fmt.Errorf("a workload names itself %.260q", a.Workload),
			Public: "the request's metadata Workload must name the workload: small letters, digits, dashes and dots, " +
				"at most 253"}
	case p.How == byToken:
		return asked, nil
	case p.How == byCertificate && a.Workload != "" && asked != p.name && !byKey:
		return "", refusal(byCertificate, "other workload", "workload %s asks for a certificate of %.260q",
			p.name, a.Workload)
	case p.How == byJWT || p.How == byReview:
		return keyName(p.ID, a.KeyHash), nil
	}
	return p.name, nil
}

// Refusal is why a call is refused.
type Refusal struct {
	// Code and Public are for the caller.
	Code   codes.Code
	Public string
	// Reason is one word or two, for metrics: "expired".
	Reason string
	// Err is the whole reason, for the audit log.
	Err error

	detail *errdetails.ErrorInfo // for the caller's agent; may be nil
}

// GRPCStatus is the answer to the caller.
func (r *Refusal) GRPCStatus() *status.Status {
	s := status.New(r.Code, r.Public)
	if r.detail != nil {
		if with, err := s.WithDetails(r.detail); err == nil { // else the text has to do
			s = with
		}
	}
	return s
}

// Error is the whole reason.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %v", r.Reason, r.Err) }

// Unwrap is the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// refusal refuses a proof of a kind. The caller does not learn the reason.
func refusal(how, reason, format string, args ...any) *Refusal {
	r := &Refusal{Code: codes.Unauthenticated, Public: publicCertificate, Reason: reason,
		Err: fmt.Errorf(format, args...)}
	switch how {
	case byToken:
		r.Code, r.Public = codes.PermissionDenied, publicToken
	case byJWT, byReview:
		r.Public = publicJWT
	}
	return r
}

// The answers to callers. The exact reason is only in the audit log, so that guessing does not help.
const (
	publicToken = "the join token is not accepted: it may be used, expired, revoked, mistyped or for another " +
		"group; make a new one on the control plane: ashorectl join-token create --group NAMESPACE/NAME"
	publicCertificate = "the client certificate is not accepted: it may be expired, revoked, replaced or of " +
		"another mesh; join again with a new line of \"ashorectl join-token create\" " +
		"(if it was revoked, it has to be restored first)"
	publicJWT = "the token is not accepted: it may be expired, revoked, or of an issuer or audience that is not " +
		"trusted here"
	publicReview = "the cluster that issued the token cannot review it now; try again. " +
		"\"ashorectl problems\" on the control plane says why"
	publicBehind = "this control plane is out of touch with the store that it shares: try again, or ask another one"
	publicNobody = "no proof of identity was given: send a join token, a certificate of this mesh, or a token " +
		"of a trusted issuer"
)

// attest authenticates the caller of CreateCertificate. It changes nothing. A join token is used
// alone. Of a certificate and another token one is enough, because Istio's agents also send their
// old certificate. A revoked certificate is refused with any token. Errors: *Refusal, or why the
// caller cannot be authenticated now.
func (s *Server) attest(ctx context.Context, c Call) (*Proof, error) {
	if isToken(c.Bearer) {
		return s.config.Ledger.attestToken(ctx, c)
	}
	var refused error = &Refusal{Code: codes.Unauthenticated, Public: publicNobody, Reason: "no proof",
		Err: errors.New("the call has no token and no certificate")}
	if len(c.Peer) > 0 && s.config.Peers != nil {
		p, err := s.config.Peers.attest(ctx, c)
		if r, ok := errors.AsType[*Refusal](err); err == nil || ok && r.Reason == reasonRevoked {
			return p, err
		}
		refused = err
	}
	if attest := s.attestorOf(c); attest != nil {
		p, err := attest(ctx, c)
		if r, ok := errors.AsType[*Refusal](err); err == nil || len(c.Peer) == 0 || ok && r.Code == codes.Unavailable {
			return p, err
		}
	}
	return nil, refused
}

// attestorOf returns who checks the bearer token of a call: an issuer in the settings, else the
// clusters. Nil: nobody.
func (s *Server) attestorOf(c Call) attestFunc {
	jwt := s.config.JWT
	switch {
	case c.Bearer == "":
		return nil
	case s.config.Reviewer != nil && (jwt == nil || !jwt.issued(c.Bearer)):
		return s.attestReview
	case jwt != nil && len(jwt.issuers) > 0:
		return func(_ context.Context, c Call) (*Proof, error) { return jwt.attest(c) }
	}
	return nil
}

// attestToken authenticates a caller by a join token, which lets one workload join its group.
// Errors: *Refusal, or why the token cannot be checked now.
func (l *Ledger) attestToken(ctx context.Context, c Call) (*Proof, error) {
	t, _, err := l.checkToken(ctx, c.Bearer, c.Now)
	if err != nil {
		return nil, err
	}
	id, err := l.resolve(ctx, t.Group)
	if errors.Is(err, ErrNoGroup) { // the token is good, so its holder may know
		return nil, &Refusal{Code: codes.FailedPrecondition,
			Public: "the WorkloadGroup of the join token is missing or makes no identity", Reason: "no group",
			Err: fmt.Errorf("join token %s: %w: write the WorkloadGroup, or make a token for another one", t.ID, err)}
	}
	if err != nil {
		return nil, err
	}
	p := &Proof{ID: id, How: byToken, Group: t.Group, Caller: "token " + t.ID, token: c.Bearer, from: c.From}
	if len(c.Peer) > 0 {
		p.shown = keyHash(c.Peer[0])
	}
	return p, nil
}

// bearer is the token of an authorization header, or empty.
func bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
