package main

import (
	"context"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// workloads are those that registered themselves, with their health: of this ashored, or of all
// that share a store.
type workloads interface {
	registry.Runtime
	Run(ctx context.Context) error
}

// workloads makes what the settings say; id may be nil.
func (d doors) workloads(ctx context.Context, s settings, id *identity, back *backend, log hclog.Logger) (workloads,
	error) {
	if !s.Store.shared() {
		return registry.NewMemory(registry.MemoryConfig{File: filepath.Join(s.State, "runtime.json"),
			Replica: machineName(), Grace: s.Workloads.Grace, RestartGrace: s.Workloads.RestartGrace, Log: log})
	}
	c := shared.Config{Records: d.store.Records(), Replica: machineName(), Grace: s.Workloads.Grace,
		RestartGrace: s.Workloads.RestartGrace, Log: log}
	if id != nil {
		c.Replica, c.Advertise, c.Member = s.replicaName(id.own), id.reach.addresses, id.manager.ReplicaID()
	}
	rt, err := shared.New(ctx, c)
	if err != nil {
		return nil, err
	}
	if id != nil {
		id.others = rt.Advertised
		id.members.Store(new(members(rt)))
	}
	for _, m := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_replicas",
			Help: "Replicas that send heartbeats, with this one."}, func() float64 { return float64(rt.Replicas()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_registrations_unshared",
			Help: "Workloads whose latest change is not written to the shared store yet."}, func() float64 { return float64(rt.Unshared()) }),
	} {
		if err := d.registry.Register(m); err != nil {
			return nil, err
		}
	}
	back.more = append(back.more, func() []feed.Problem {
		var out []feed.Problem
		for _, text := range rt.Problems() {
			out = append(out, feed.Problem{Severity: feed.Error, Source: "workloads", Field: "store", Text: text})
		}
		return out
	})
	return rt, nil
}

// replicaName is what people call this ashored among those that share its store; empty: it shares
// none.
func (s *settings) replicaName(own string) string {
	if !s.Store.shared() {
		return ""
	}
	return machineName() + " (" + own + ")"
}
