package server

import (
	"context"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// newRuntime returns the registered workloads of this ashored, or of all replicas that share a
// store.
func (s *Server) newRuntime(ctx context.Context, reach reach) (*shared.Runtime, error) {
	cfg := &s.cfg
	c := shared.Config{Records: s.store.Records(), SingleReplica: !cfg.Store.Shared(), Replica: settings.MachineName(),
		Log: s.log.Named("workloads")}
	if cfg.Secure() && !c.SingleReplica {
		c.Replica += " (" + reach.own + ")"
		c.Advertise, c.Address = reach.addresses, reach.own
	}
	rt, err := shared.New(ctx, c)
	if err != nil {
		return nil, err
	}
	if !c.SingleReplica {
		s.collect(func(emit emitFunc) {
			emit("ashore_replicas", "Replicas that send heartbeats, with this one.", float64(rt.Replicas()))
			emit("ashore_registrations_unshared",
				"Workloads whose latest change is not written to the shared store yet.", float64(rt.Unshared()))
		})
	}
	return rt, nil
}

// otherReplicas returns the other replicas that are alive.
func otherReplicas(rt *shared.Runtime) func() []admin.Replica {
	return func() (out []admin.Replica) {
		for _, o := range rt.Others() {
			out = append(out, admin.Replica(o))
		}
		return out
	}
}
