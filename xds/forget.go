package xds

import (
	"context"
	"errors"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// forgetRevoked removes the registrations of revoked workloads whose proxies are disconnected. They
// would otherwise last until their leases end.
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
		s.log.Info("registration removed: the workload is revoked",
			"workload", key.Namespace+"/"+key.Name, "group", key.Group, "identity", r.Identity, "error", err)
		if err := s.cfg.Runtime.Remove(ctx, key, ""); err != nil && !errors.Is(err, registry.ErrSession) {
			s.log.Error("the registration could not be removed: it lasts until its lease ends",
				"workload", key.Namespace+"/"+key.Name, "error", err)
		}
	}
}
