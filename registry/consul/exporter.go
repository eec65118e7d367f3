package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
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

// Exporter keeps the services of the mesh registered in a Consul. Each replica has its own node
// there, with a check that Consul turns critical when the replica has not renewed its session for
// the lease. So replicas need no coordination, and each instance is listed once for each replica.
// Run it once.
type Exporter struct {
	// Immutable.
	cfg    ExporterConfig
	client *client
	node   string

	wake     chan struct{} // capacity 1; written by Publish, read by run
	withdraw chan struct{} // closed by Withdraw
	closed   sync.Once

	mu     sync.Mutex
	mesh   meshState    // guarded by mu
	status ExportStatus // guarded by mu
}

// meshState is the content of the mesh.
type meshState struct {
	services  Services
	endpoints Endpoints
}

// ExportStatus describes an Exporter.
type ExportStatus struct {
	// Entries is how many entries this replica has in Consul. Zero if that is not known.
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
	if err := cfg.Options.checked(); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	c, err := newClient(&cfg.Options)
	if err != nil {
		return nil, err
	}
	return &Exporter{
		cfg: cfg, client: c, node: cfg.Options.Export.node(cfg.Replica),
		wake: make(chan struct{}, 1), withdraw: make(chan struct{}),
	}, nil
}

// Publish replaces the state of the mesh. It does not wait. Nothing is written or removed before
// the first call. Safe for concurrent use.
func (e *Exporter) Publish(services Services, endpoints Endpoints) {
	e.mu.Lock()
	e.mesh = meshState{services, endpoints}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// published returns the state of the last Publish.
func (e *Exporter) published() meshState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mesh
}

// Withdraw makes Run remove all entries of this replica and return. Safe for concurrent use.
func (e *Exporter) Withdraw() { e.closed.Do(func() { close(e.withdraw) }) }

// Target identifies the Consul and the node. Two exporters with one target would write the same
// entries.
func (e *Exporter) Target() string { return e.cfg.Options.Address + " " + e.node }

// Status returns a description of the exporter. Safe for concurrent use.
func (e *Exporter) Status() ExportStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.status
	out.Problems = slices.Clone(out.Problems)
	return out
}

// Run keeps the services registered until ctx ends, and leaves the entries to the lease: a replica
// that restarts within it finds them unchanged. After Withdraw it removes them and returns. It
// returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.client.transport.CloseIdleConnections()
	select {
	case <-ctx.Done():
		return nil
	case <-e.withdraw:
	case <-e.wake:
	}
	for failures := 0; ; {
		began := time.Now()
		done, err := e.session(ctx)
		if done || ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		e.fail(err, failures)
		if sleep(ctx, backoff(failures)) != nil {
			return nil
		}
	}
}

// fail reports why Consul cannot be written to, besides other problems. A single failure is not
// reported: Consul elects a leader now and then.
func (e *Exporter) fail(err error, failures int, others ...feed.Problem) {
	if failures > 1 {
		failure := feed.Problem{Severity: feed.Warning, Object: "export", Text: e.explain(err)}
		e.report(append(others, failure), 0)
	}
}

// report replaces the status, and logs new problems.
func (e *Exporter) report(list []feed.Problem, entries int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range list {
		p := &list[i]
		p.Source, p.Since = sourcePrefix+e.cfg.Name, time.Now()
		same := func(o feed.Problem) bool { return o.Object == p.Object && o.Text == p.Text }
		if j := slices.IndexFunc(e.status.Problems, same); j >= 0 {
			p.Since = e.status.Problems[j].Since
		} else {
			e.cfg.Log.Warn("services of the mesh are not registered in Consul", "node", e.node, "problem", p.String())
		}
	}
	if len(list) == 0 && len(e.status.Problems) > 0 {
		e.cfg.Log.Info("all services of the mesh are registered in Consul", "node", e.node)
	}
	feed.SortProblems(list)
	e.status.Problems, e.status.Entries = list, entries
}

// countWrite counts a transaction.
func (e *Exporter) countWrite() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Writes++
}

// explain returns what an error means, and what to do.
func (e *Exporter) explain(err error) string {
	var status api.StatusError
	if errors.As(err, &status) && (status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized) {
		return fmt.Sprintf("Consul refuses the token (%s): the one in tokenFile (%s) needs node %q and session %q with "+
			"write, and service with write for the names that are registered",
			consulhttp.OneLine(status.Body), cmp.Or(e.cfg.Options.TokenFile, "none is set"), e.node, e.node)
	}
	return e.client.explain(err)
}
