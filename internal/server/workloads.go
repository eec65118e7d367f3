package server

import (
	"context"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// workloads are those that registered themselves, and the replicas that share them.
type workloads struct {
	registry.Runtime
	// Run keeps them up to date until ctx ends.
	Run func(ctx context.Context) error
	// Advertised returns where agents reach the other replicas.
	Advertised func() []string
	// others returns the other replicas that are alive.
	others func() []ca.Replica
}

// newRuntime returns the workloads of this ashored, or of all that share a store.
func (s *Server) newRuntime(ctx context.Context, cfg settings.Config, reach reach) (workloads, error) {
	log := s.log.Named("workloads")
	c := shared.Config{Records: s.store.Records(), SingleReplica: !cfg.Store.Shared(), Replica: settings.MachineName(),
		Grace: cfg.Workloads.Grace, RestartGrace: cfg.Workloads.RestartGrace, Log: log}
	if cfg.Secure() && !c.SingleReplica {
		c.Replica += " (" + reach.own + ")"
		c.Advertise, c.Address = reach.addresses, reach.own
	}
	rt, err := shared.New(ctx, c)
	if err != nil {
		return workloads{}, err
	}
	s.report(func() (out []feed.Problem) {
		for _, text := range rt.Problems() {
			out = append(out, feed.Problem{Severity: feed.Error, Source: "workloads", Field: "store", Text: text})
		}
		return out
	})
	if c.SingleReplica {
		return workloads{rt, rt.Run, func() []string { return nil }, func() []ca.Replica { return nil }}, nil
	}
	others := func() (out []ca.Replica) {
		for _, o := range rt.Others() {
			out = append(out, ca.Replica(o))
		}
		return out
	}
	s.collect(func(emit emitFunc) {
		emit("ashore_replicas", "Replicas that send heartbeats, with this one.", float64(rt.Replicas()))
		emit("ashore_registrations_unshared",
			"Workloads whose latest change is not written to the shared store yet.", float64(rt.Unshared()))
	})
	return workloads{rt, rt.Run, rt.Advertised, others}, nil
}
