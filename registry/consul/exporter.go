package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// ExporterConfig says what is registered where.
type ExporterConfig struct {
	// Name is the name of the source whose Consul is used. Required.
	Name string
	// Options are those of the source; Options.Export says what is registered, and has an owner.
	Options Options
	// ExportTo is the default for services without exportTo, as defaultServiceExportTo in MeshConfig. Default: everybody.
	ExportTo []string
	// Replica names this replica, unique among those of the mesh: letters, digits and '-'. Required.
	Replica string
	// Log receives what an operator would act on; required.
	Log hclog.Logger
}

// Exporter keeps the services of the mesh registered in a Consul. Each replica has a node of its own there, with a check
// that Consul turns critical when the replica has not renewed its session for the lease. So replicas need no coordination,
// and each instance is listed once for each replica. Run it once.
type Exporter struct {
	cfg      ExporterConfig // immutable
	client   *client        // immutable
	node     string         // immutable
	wake     chan struct{}  // capacity 1; written by Publish, read by sync
	withdraw chan struct{}  // closed by Withdraw
	closed   sync.Once

	mu     sync.Mutex
	latest *meshState    // guarded by mu; nil before the first Publish
	status ExportStatus  // guarded by mu
	failed *feed.Problem // guarded by mu; why Consul cannot be written to; nil: it can
}

// meshState is the state of the mesh that was published last.
type meshState struct {
	services  Services
	endpoints Endpoints
}

// ExportStatus describes an Exporter.
type ExportStatus struct {
	// Entries is how many entries this replica has in Consul.
	Entries int
	// Writes counts the transactions that were sent.
	Writes uint64
	// Problems is all that is wrong.
	Problems []feed.Problem
}

const (
	// sessionCheck is the check of the node that Consul's servers turn critical when the session ends, and all entries with it.
	sessionCheck = "ashore-session"
	// sessionCheckType is the type of such checks. Source: Consul, agent/consul/state (updateSessionCheck), since 1.7.
	sessionCheckType = "session"
	// nodeAddress is a documentation address: nothing listens on the node itself. Source: RFC 5737.
	nodeAddress = "192.0.2.1"
)

var (
	errForeignNode = errors.New("belongs to somebody else")
	errSessionLost = errors.New("the session has ended: Consul has not heard of this replica for too long, or its state was restored")
)

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
	return &Exporter{cfg: cfg, client: c, node: cfg.Options.Export.node(cfg.Replica), wake: make(chan struct{}, 1), withdraw: make(chan struct{})}, nil
}

// Publish replaces the state of the mesh. It does not wait. Nothing is written or removed before the first call. Safe for concurrent
// use.
func (e *Exporter) Publish(services Services, endpoints Endpoints) {
	e.mu.Lock()
	e.latest = &meshState{services, endpoints}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Withdraw makes Run remove all entries of this replica and return. Safe for concurrent use.
func (e *Exporter) Withdraw() { e.closed.Do(func() { close(e.withdraw) }) }

// Target identifies the Consul and the node: two exporters with one target would write the same entries.
func (e *Exporter) Target() string { return e.cfg.Options.Address + " " + e.node }

// Status describes the exporter. Safe for concurrent use.
func (e *Exporter) Status() ExportStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.status
	out.Problems = slices.Clone(out.Problems)
	if e.failed != nil {
		out.Problems = append(out.Problems, *e.failed)
	}
	return out
}

// Run keeps the services registered until ctx ends, and leaves the entries to the lease: a replica that restarts within it finds
// them unchanged. After Withdraw it removes them and returns. It returns nil.
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
		e.setFailure(err, failures)
		if sleep(ctx, backoff(failures)) != nil {
			return nil
		}
	}
}

// session registers the node and keeps the entries current during one session. done means that everything was withdrawn.
func (e *Exporter) session(ctx context.Context) (done bool, err error) {
	id, err := e.begin(ctx)
	if err != nil {
		return false, err
	}
	group, ctx := errgroup.WithContext(ctx)
	stop := make(chan struct{}) // closed when the writer has ended
	group.Go(func() error { return e.renew(ctx, id, stop) })
	group.Go(func() (err error) {
		defer close(stop)
		done, err = newExportWriter(e).run(ctx)
		return err
	})
	err = group.Wait()
	return done, err
}

// begin registers the node, begins a session, and binds the check of the node to it.
func (e *Exporter) begin(ctx context.Context) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	owner, partition := e.cfg.Options.Export.Owner, e.cfg.Options.Partition
	node, _, err := e.client.api.Catalog().Node(e.node, e.reads(ctx))
	if err != nil {
		return "", err
	}
	if node != nil && node.Node != nil && node.Node.Meta[keyOwner] != owner {
		return "", fmt.Errorf("the node %q in Consul %w (its metadata has no %s: %s): choose another export.owner, or remove that node", e.node, errForeignNode, keyOwner, owner)
	}
	register := &api.CatalogRegistration{Node: e.node, Address: nodeAddress, NodeMeta: map[string]string{keyOwner: owner}, Partition: partition}
	if _, err := e.client.api.Catalog().Register(register, e.writes(ctx)); err != nil {
		return "", err
	}
	name := fmt.Sprintf("ashore export %s %d", e.node, time.Now().UnixNano()) // a check is bound to a session by its name
	session, _, err = e.client.api.Session().CreateNoChecks(&api.SessionEntry{
		Name: name, Node: e.node, TTL: e.cfg.Options.Export.Lease.String(), Behavior: api.SessionBehaviorRelease,
	}, e.writes(ctx))
	if err != nil {
		return "", err
	}
	if session == "" {
		return "", errors.New("the answer has no session: is it the address of Consul's HTTP interface?")
	}
	register.Checks = api.HealthChecks{{
		Node: e.node, CheckID: sessionCheck, Name: "session of the mesh's control plane", Type: sessionCheckType, Status: api.HealthPassing,
		Output: "renewed by " + e.cfg.Replica, Definition: api.HealthCheckDefinition{SessionName: name}, Partition: partition,
	}}
	_, err = e.client.api.Catalog().Register(register, e.writes(ctx))
	return session, err
}

// renew keeps the session alive until ctx ends or stop is closed. While Consul does not answer it goes on: the session may still be
// valid. Errors: errSessionLost.
func (e *Exporter) renew(ctx context.Context, id string, stop <-chan struct{}) error {
	tick := time.NewTicker(e.cfg.Options.Export.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-tick.C:
		}
		renewal, cancel := context.WithTimeout(ctx, e.cfg.Options.Export.Lease/3)
		session, _, err := e.client.api.Session().Renew(id, e.writes(renewal))
		cancel()
		if err == nil && session == nil {
			return errSessionLost
		}
	}
}

// reads returns options for reads. A writer reads what the leader has.
func (e *Exporter) reads(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Partition: e.cfg.Options.Partition, RequireConsistent: true}).WithContext(ctx)
}

func (e *Exporter) writes(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Partition: e.cfg.Options.Partition}).WithContext(ctx)
}
