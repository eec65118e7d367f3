package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/connlimit"
)

// clusterHeader is the header by which agents name their cluster. Source: Istio, clusterIDMeta.
const clusterHeader = "clusterid"

// TokenReviewer has clusters of Kubernetes review the tokens of their service accounts.
type TokenReviewer interface {
	// Review returns the service account that a token proves. cluster is the ID of the cluster that the
	// caller names; it may be empty. refused is why the token proves nothing, and err is why it cannot
	// be reviewed now. refused is an *UnknownClusterError if no cluster has that ID.
	Review(ctx context.Context, cluster, token string) (namespace, account string, refused, err error)
}

// UnknownClusterError means that a caller names none of the clusters that review tokens. The caller
// gets its text.
type UnknownClusterError struct {
	// Cluster is the ID that the caller names; it may be empty.
	Cluster string
	// Known are the IDs of the clusters.
	Known []string
}

func (e *UnknownClusterError) Error() string {
	problem := "does not name its cluster (header clusterid), and there are several:"
	if e.Cluster != "" {
		problem = fmt.Sprintf("names the cluster %.80q, whose tokens are not accepted; want one of", e.Cluster)
	}
	return fmt.Sprintf("the caller %s %s; set %s of ashore-agent, or ISTIO_META_CLUSTER_ID of Istio's agent", problem,
		strings.Join(e.Known, ", "), ClusterSetting)
}

// ClusterSetting is the setting of ashore-agent that names the cluster of its token.
const ClusterSetting = "workload.cluster"

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
		r := refusal(byReview, "review", "%w", refused)
		if unknown, ok := errors.AsType[*UnknownClusterError](refused); ok {
			r.Public = unknown.Error()
		}
		return nil, r
	}
	id, err := s.config.Ledger.identity(namespace, account)
	if err != nil {
		return nil, refusal(byReview, "review", "%w", err)
	}
	return &Proof{ID: id, How: byReview, Caller: accountCaller(id), from: c.From}, nil
}
