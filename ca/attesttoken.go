package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// tokenAttestor is its name.
const tokenAttestor = "token"

// TokenAttestor proves who calls by a join token: whoever has it may join its group, once.
// Workloads name themselves.
type TokenAttestor struct {
	ledger *Ledger
}

// NewTokenAttestor makes one over the tokens of a ledger.
func NewTokenAttestor(l *Ledger) *TokenAttestor { return &TokenAttestor{ledger: l} }

// Name implements Attestor.
func (*TokenAttestor) Name() string { return tokenAttestor }

// Attest implements Attestor. A call with a join token proves itself by that or not at all.
func (a *TokenAttestor) Attest(ctx context.Context, c Call) (*Proof, error) {
	if !isToken(c.Bearer) {
		return nil, ErrNotMine
	}
	t, _, err := a.ledger.checkToken(ctx, c.Bearer, c.Now)
	if err != nil {
		return nil, err
	}
	id, err := a.ledger.resolve(ctx, t.Group)
	if err != nil && !errors.Is(err, ErrNoGroup) && !errors.Is(err, errGroupIdentity) {
		return nil, err // not yet, or not now
	}
	if err != nil { // the token is good, so its holder may know
		return nil, a.ledger.unsure(&Refusal{Code: codes.FailedPrecondition,
			Public: "the WorkloadGroup of the join token is missing or makes no identity", Reason: "no group", Final: true,
			Err: fmt.Errorf("join token %s: %w: write the WorkloadGroup, or make a token for another one", t.ID, err)})
	}
	p := &Proof{ID: id, How: tokenAttestor, Group: t.Group, Caller: "token " + t.ID, token: c.Bearer, from: c.From}
	if len(c.Peer) > 0 {
		shown := KeyHashOf(c.Peer[0])
		p.shown = &shown
	}
	p.Name = func(q Ask) (string, error) {
		if q.Group != "" && q.Group != t.Group {
			return "", refuseToken("token of another group",
				fmt.Errorf("join token %s is of group %q, and comes for %.200q", t.ID, t.Group, q.Group))
		}
		return joinName(id.Namespace, q.Workload)
	}
	return p, nil
}

// joinName is the name of a workload that names itself. Errors: *Refusal.
func joinName(namespace, name string) (string, error) {
	if !dnsname.Valid(name) {
		return "", &Refusal{Code: codes.InvalidArgument, Reason: "bad name", Final: true,
			Err: fmt.Errorf("a workload names itself %.260q", name),
			Public: "the request's metadata Workload must name the workload: small letters, digits, dashes and dots, at " +
				"most 253"}
	}
	return namespace + "/" + name, nil
}

// bearer is the token of an authorization header, or empty.
func bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
