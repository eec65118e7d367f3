package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

// attestToken proves who calls by a join token: whoever has it may join its group, once. Workloads
// name themselves. Errors: *Refusal, or why it cannot be told now.
func (l *Ledger) attestToken(ctx context.Context, c Call) (*Proof, error) {
	t, _, err := l.checkToken(ctx, c.Bearer, c.Now)
	if err != nil {
		return nil, err
	}
	id, err := l.resolve(ctx, t.Group)
	if err != nil && !errors.Is(err, ErrNoGroup) && !errors.Is(err, errGroupIdentity) {
		return nil, err // not yet, or not now
	}
	if err != nil { // the token is good, so its holder may know
		return nil, l.unsure(&Refusal{Code: codes.FailedPrecondition,
			Public: "the WorkloadGroup of the join token is missing or makes no identity", Reason: "no group",
			Err: fmt.Errorf("join token %s: %w: write the WorkloadGroup, or make a token for another one", t.ID, err)})
	}
	p := &Proof{ID: id, How: byToken, Group: t.Group, Caller: "token " + t.ID, token: c.Bearer, from: c.From}
	if len(c.Peer) > 0 {
		shown := KeyHashOf(c.Peer[0])
		p.shown = &shown
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
