package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// knows reports whether a type is one of configuration objects.
func (s *Server) knows(typeURL string) bool {
	return s.cfg.Objects != nil && s.cfg.Objects.Knows(typeURL)
}

// mayRead returns an error if a type is one of configuration objects, which are for other control
// planes, and the stream's client is none. Source: Istio's generator "api", which serves identities
// of the root namespace.
func (st *stream) mayRead(typeURL string) error {
	if !st.server.knows(typeURL) {
		return nil
	}
	why := st.server.cfg.Objects.May(st.who.Identity)
	if why == nil {
		if !st.reads.Swap(true) {
			st.recordRead(audit.OK, "")
		}
		return nil
	}
	st.server.metrics.refused.WithLabelValues("configuration").Inc()
	st.recordRead(audit.Refused, why.Error())
	if st.who.Identity == (spiffe.ID{}) {
		return status.Error(codes.Unauthenticated, why.Error())
	}
	return status.Error(codes.PermissionDenied, why.Error())
}

// recordRead audits that a client reads configuration, or may not.
func (st *stream) recordRead(outcome, reason string) {
	st.audit(audit.ConfigRead, "everything", outcome, reason)
}
