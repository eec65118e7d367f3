package ca

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/connlimit"
)

// clusterHeader is the header by which agents name their cluster. Source: Istio, clusterIDMeta.
const clusterHeader = "clusterid"

// TokenReviewer has clusters of Kubernetes review the tokens of their service accounts.
type TokenReviewer interface {
	// Review returns the service account that a token proves. cluster is the ID of the cluster that the
	// caller names; it may be empty. refused is why the token proves nothing, and err is why it cannot
	// be reviewed now.
	Review(ctx context.Context, cluster, token string) (namespace, account string, refused, err error)
}

// attestReview authenticates a caller by a token that a cluster reviews. Anybody may call, so the
// reviews in progress are bounded. Errors: *Refusal, or why ctx ended.
func (s *Server) attestReview(ctx context.Context, c Call) (*Proof, error) {
	if _, _, err := parseJWT(c.Bearer, byReview); err != nil {
		return nil, err
	}
	release, err := s.reviews.acquire(ctx, connlimit.Network(c.From).String())
	if err != nil {
		return nil, err
	}
	defer release()
	namespace, account, refused, err := s.config.Reviewer.Review(ctx, c.Cluster, c.Bearer)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &Refusal{Code: codes.Unavailable, Public: publicReview, Reason: "no review", Err: err}
	case refused != nil:
		return nil, refusal(byReview, "review", "%w", refused)
	}
	id, err := s.config.Ledger.identity(namespace, account)
	if err != nil {
		return nil, refusal(byReview, "review", "%w", err)
	}
	return &Proof{ID: id, How: byReview, Caller: accountCaller(id), from: c.From}, nil
}
