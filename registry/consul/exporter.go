package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// ExporterConfig says what is registered where.
type ExporterConfig struct {
	// Name is that of the source whose Consul it is. Required.
	Name string
	// Options are those of the source; Options.Export says what is registered, and has an owner.
	Options Options
	// ExportTo is who sees services that say nothing of that, as in their own exportTo. Default: everybody.
	ExportTo []string
	// Replica is the name of this one among those that may register, for people.
	Replica string
	// Store names what those that may register share; who has another one registers something else. Equal on all of them.
	Store string
	// Log is told of what an operator would act on; required.
	Log hclog.Logger
}

// Exporter registers services of the mesh in a Consul, for as long as it holds the lease of their owner. Of several replicas
// one does so, and when that is gone another takes over. Run it once.
type Exporter struct {
	cfg    ExporterConfig
	client *client
	shards []*shard
	leave  func() // closes what has the shards withdraw, once
	// published is closed by the first Publish.
	published chan struct{}
	publish   func()                // closes it, once
	clearing  atomic.Pointer[shard] // of a former node, while that is cleared
}

// meshState is what the mesh has.
type meshState struct {
	services  Services
	endpoints Endpoints
}

// ExportStatus is how an Exporter stands.
type ExportStatus struct {
	// Holds says that it is this replica which registers.
	Holds bool
	// Entries are how many entries stand in Consul by it.
	Entries int
	// Writes counts the transactions by which it has written.
	Writes uint64
	// Problems are what is wrong.
	Problems []feed.Problem
}

// exportConnections is how many connections there are at most for a node: one asks, one renews, one waits for the lease.
const exportConnections = 4

// NewExporter checks a configuration. It asks nobody. Errors name the option that is wrong.
func NewExporter(cfg ExporterConfig) (*Exporter, error) {
	if cfg.Name == "" || cfg.Log == nil || !cfg.Options.Export.on() {
		return nil, errors.New("consul: who registers needs a name, a logger and an owner")
	}
	if err := cfg.Options.checked(); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	cfg.Options.Connections = exportConnections * cfg.Options.Export.Nodes
	c, err := newClient(&cfg.Options)
	if err != nil {
		return nil, err
	}
	withdraw := make(chan struct{})
	e := &Exporter{cfg: cfg, client: c, leave: sync.OnceFunc(func() { close(withdraw) }), published: make(chan struct{})}
	e.publish = sync.OnceFunc(func() { close(e.published) })
	for i := range cfg.Options.Export.Nodes {
		e.shards = append(e.shards, e.shard(i, withdraw))
	}
	return e, nil
}

// shard is who registers on a node, until withdraw is closed.
func (e *Exporter) shard(number int, withdraw <-chan struct{}) *shard {
	return &shard{cfg: &e.cfg, number: number, client: e.client, node: e.cfg.Options.Export.node(number), wake: make(chan struct{}, 1), withdraw: withdraw}
}

// Publish makes this what is registered. It does not wait. Nothing is written or removed before the first call. Safe for
// concurrent use.
func (e *Exporter) Publish(services Services, endpoints Endpoints) {
	defer e.publish()
	now := &meshState{services, endpoints}
	for _, s := range e.shards {
		s.latest.Store(now)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Withdraw has Run remove what it has registered and end; where another replica waits for the lease, that takes over instead.
// Safe for concurrent use.
func (e *Exporter) Withdraw() { e.leave() }

// Target is the Consul, the owner and the nodes: entries of two exporters with equal targets are the same.
func (e *Exporter) Target() string {
	return fmt.Sprintf("%s %s %d", e.cfg.Options.Address, e.cfg.Options.Export.Owner, e.cfg.Options.Export.Nodes)
}

// Status is how it stands. Safe for concurrent use.
func (e *Exporter) Status() ExportStatus {
	var out ExportStatus
	told := map[string]bool{} // what is wrong for all is told once
	shards := e.shards
	if s := e.clearing.Load(); s != nil {
		shards = append(slices.Clone(shards), s)
	}
	for _, s := range shards {
		one := s.stands()
		out.Holds = out.Holds || one.Holds
		out.Entries += one.Entries
		out.Writes += one.Writes
		for _, p := range one.Problems {
			if !told[p.String()] {
				told[p.String()] = true
				out.Problems = append(out.Problems, p)
			}
		}
	}
	return out
}

// Run registers until ctx ends, and then leaves what stands to the replica that takes over, or to the end of the lease;
// or until Withdraw has removed it. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.client.transport.CloseIdleConnections()
	var all sync.WaitGroup
	for _, s := range e.shards {
		all.Go(func() { s.run(ctx) })
	}
	all.Go(func() { e.clearFormer(ctx) })
	all.Wait()
	return nil
}
