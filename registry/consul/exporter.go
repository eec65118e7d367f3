package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
)

// ExporterConfig configures an Exporter.
type ExporterConfig struct {
	// Name is the name of the source whose Consul is used. Required.
	Name string
	// Options are those of the source. Options.Export has an owner and selects what is registered.
	Options Options
	// ExportTo is the default for services without exportTo, as defaultServiceExportTo in
	// MeshConfig. Default: everybody.
	ExportTo []string
	// Replica names this replica, unique among those of the mesh: letters, digits and '-'.
	// Required.
	Replica string
	// Log receives what an operator would act on. Required.
	Log hclog.Logger
}

// Exporter keeps the services of the mesh registered in a Consul. Each replica registers its own
// node with a check bound to a session. If the session is not renewed within Lease, the check
// becomes critical. Replicas need no coordination; each endpoint appears once per replica. Run it
// once.
type Exporter struct {
	// Immutable.
	cfg    ExporterConfig
	client *client
	node   string

	wake      chan struct{} // capacity 1; written by Publish and Withdraw, read by Run
	withdrawn atomic.Bool
	writes    atomic.Uint64

	mu     sync.Mutex
	mesh   meshState    // guarded by mu
	status ExportStatus // guarded by mu

	// The rest is owned by Run.

	session     string // empty: none
	lastRenewed time.Time

	lastRead   time.Time               // zero: what Consul has is not known
	registered map[string]*exportEntry // our entries in Consul, by ID
	taken      map[string]bool         // service names registered by others
	refused    map[string]string       // why Consul rejects a service, by name
	conflicts  []feed.Problem          // services that cannot be registered
}

// Services and Endpoints are those of the mesh, by key.
type (
	Services  = pmap.Map[registry.Key, *registry.Service]
	Endpoints = pmap.Map[registry.Key, *registry.EndpointList]
)

// meshState is the content of the mesh.
type meshState struct {
	services  Services
	endpoints Endpoints
}

// ExportStatus describes an Exporter.
type ExportStatus struct {
	// Entries is the number of this replica's entries in Consul, as last read.
	Entries int
	// Writes counts the transactions that were sent.
	Writes uint64
	// Problems are the services that are not registered, and why Consul cannot be written to.
	Problems []feed.Problem
}

// NewExporter checks a configuration. It does no I/O. Errors name the option that is wrong.
func NewExporter(cfg ExporterConfig) (*Exporter, error) {
	if cfg.Name == "" || cfg.Replica == "" || cfg.Log == nil || !cfg.Options.Export.on() {
		return nil, errors.New("consul: an exporter needs a name, a replica, a logger and an owner")
	}
	if err := consulhttp.Checked(cfg.Options.Check); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	node := cfg.Options.Export.node(cfg.Replica)
	c, err := newClient(&cfg.Options, fmt.Sprintf("write for node %q and session %q, and service write for the names "+
		"that are registered", node, node))
	if err != nil {
		return nil, err
	}
	return &Exporter{cfg: cfg, client: c, node: node, wake: make(chan struct{}, 1)}, nil
}

// Publish replaces the state of the mesh. It does not wait. Nothing is written or removed before
// the first call. Safe for concurrent use.
func (e *Exporter) Publish(services Services, endpoints Endpoints) {
	e.mu.Lock()
	e.mesh = meshState{services, endpoints}
	e.mu.Unlock()
	task.Poke(e.wake)
}

// Withdraw makes Run remove all entries of this replica and return. Safe for concurrent use.
func (e *Exporter) Withdraw() {
	e.withdrawn.Store(true)
	task.Poke(e.wake)
}

// Status returns the current status. Safe for concurrent use.
func (e *Exporter) Status() ExportStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.status
	out.Problems, out.Writes = slices.Clone(out.Problems), e.writes.Load()
	return out
}

// exportGap is the time between two rounds. Each one compares all entries.
const exportGap = 200 * time.Millisecond

// renewGap is how often the session is renewed.
func (e *Exporter) renewGap() time.Duration { return min(e.cfg.Options.Export.Lease/3, readGap) }

// Run keeps the services registered until ctx ends. It does not remove entries then: they expire
// with the lease, or a restarted replica finds them. After Withdraw it removes them. Run always
// returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.client.transport.CloseIdleConnections()
	var next <-chan time.Time // nil before the first Publish
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-next:
		}
		withdrawn := e.withdrawn.Load()
		err := e.reconcile(ctx, withdrawn)
		pause := exportGap
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && withdrawn:
			e.cfg.Log.Info("removed the mesh's services from Consul", "node", e.node)
			return nil
		case err != nil:
			failures++
			e.lastRead = time.Time{} // a write may or may not have happened
			pause = min(backoff(failures), e.renewGap())
			task.Poke(e.wake)
		default:
			failures = 0
		}
		if err == nil || failures > 1 { // ignore a single failure, such as a leader election
			e.report(err)
		}
		if !task.Sleep(ctx, pause) {
			return nil
		}
		next = time.After(e.renewGap() - pause)
	}
}

// warning returns a problem of the export.
func (e *Exporter) warning(object, format string, args ...any) feed.Problem {
	return feed.Problem{
		Severity: feed.Warning, Source: e.cfg.Name, Object: object, Text: fmt.Sprintf(format, args...),
	}
}

// report replaces the status, and logs new problems. err is that of the last round.
func (e *Exporter) report(err error) {
	list := slices.Clone(e.conflicts)
	for name, reason := range e.refused {
		remedy := ""
		if strings.Contains(reason, "Permission denied") {
			remedy = ": give the token in tokenFile service:write for it, or exclude it by export.except"
		}
		list = append(list, e.warning("Consul service "+name, "is not written completely, Consul refuses it (%s)%s",
			reason, remedy))
	}
	if err != nil {
		list = append(list, e.warning("export", "%s", e.client.explain(err)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range list {
		if !slices.Contains(e.status.Problems, p) {
			e.cfg.Log.Warn("services of the mesh are not registered in Consul", "node", e.node, "problem", p.String())
		}
	}
	if len(list) == 0 && len(e.status.Problems) > 0 {
		e.cfg.Log.Info("all services of the mesh are registered in Consul", "node", e.node)
	}
	feed.SortProblems(list)
	e.status.Problems, e.status.Entries = list, len(e.registered)
}
