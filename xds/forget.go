package xds

import (
	"context"
	"errors"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// forgetRevoked ends the registrations of workloads that are revoked and whose proxies have gone:
// no stream of theirs is left to end it, and their leases may last.
func (s *Server) forgetRevoked() {
	if s.cfg.Runtime == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), disconnectTimeout)
	defer cancel()
	for key, r := range s.cfg.Runtime.Registrations().All() {
		if r.Session != "" || r.Identity == "" {
			continue
		}
		id, err := spiffe.Parse(r.Identity)
		if err == nil {
			err = s.cfg.Revoked(id, r.Certificate)
		}
		if err == nil {
			continue
		}
		s.log.Info("workload is not registered any more: it is not to be believed",
			"workload", key.Namespace+"/"+key.Name, "group", key.Group, "identity", r.Identity, "error", err)
		if err := s.cfg.Runtime.Remove(ctx, key, ""); err != nil && !errors.Is(err, registry.ErrSession) {
			s.log.Error("registration was not ended: it counts until its lease ends",
				"workload", key.Namespace+"/"+key.Name, "error", err)
		}
	}
}
