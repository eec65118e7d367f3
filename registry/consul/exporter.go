package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
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
	// Log is told of what an operator would act on; required.
	Log hclog.Logger
}

// Exporter registers services of the mesh in a Consul, for as long as it holds the lease of their owner. Of several replicas
// one does so, and when that is gone another takes over. Run it once.
type Exporter struct {
	cfg    ExporterConfig
	client *client
	node   string

	latest   atomic.Pointer[meshState]
	wake     chan struct{} // capacity 1: there is another latest
	withdraw chan struct{} // closed by Withdraw
	leave    func()        // closes it, once

	mu sync.Mutex
	// the following are guarded by mu
	status ExportStatus
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

// NewExporter checks a configuration. It asks nobody. Errors name the option that is wrong.
func NewExporter(cfg ExporterConfig) (*Exporter, error) {
	if cfg.Name == "" || cfg.Log == nil || !cfg.Options.Export.on() {
		return nil, errors.New("consul: who registers needs a name, a logger and an owner")
	}
	if err := cfg.Options.checked(); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	cfg.Options.Connections = exportConnections
	c, err := newClient(&cfg.Options)
	if err != nil {
		return nil, err
	}
	e := &Exporter{cfg: cfg, client: c, node: cfg.Options.Export.node(), wake: make(chan struct{}, 1), withdraw: make(chan struct{})}
	e.leave = sync.OnceFunc(func() { close(e.withdraw) })
	return e, nil
}

// Publish makes this what is registered. It does not wait. Nothing is written or removed before the first call. Safe for
// concurrent use.
func (e *Exporter) Publish(services Services, endpoints Endpoints) {
	e.latest.Store(&meshState{services, endpoints})
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Withdraw has Run remove what it has registered and end; where another replica waits for the lease, that takes over instead.
// Safe for concurrent use.
func (e *Exporter) Withdraw() { e.leave() }

// Target is the Consul and the owner: entries of two exporters with equal targets are the same.
func (e *Exporter) Target() string { return e.cfg.Options.Address + " " + e.cfg.Options.Export.Owner }

// Status is how it stands. Safe for concurrent use.
func (e *Exporter) Status() ExportStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.status
	out.Problems = slices.Clone(out.Problems)
	return out
}

func (e *Exporter) tell(f func(*ExportStatus)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.status)
}

// exportConnections is how many connections an exporter has at most: one asks, one renews, one waits for the lease.
const exportConnections = 4

// errWithdrawn is why Run ends after Withdraw.
var errWithdrawn = errors.New("withdrawn")

// Run registers until ctx ends, and then leaves what stands to the replica that takes over, or to the end of the lease;
// or until Withdraw has removed it. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.client.transport.CloseIdleConnections()
	if !e.begun(ctx) {
		return nil
	}
	for failures := 0; ; {
		began := time.Now()
		err := e.term(ctx)
		e.tell(func(s *ExportStatus) { s.Holds = false })
		if ctx.Err() != nil || errors.Is(err, errWithdrawn) {
			return nil
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		e.trouble(err, failures)
		if sleep(ctx, backoff(failures)) != nil {
			return nil
		}
	}
}

// begun waits until there is something to register; false: it ends before.
func (e *Exporter) begun(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-e.withdraw:
		return true
	case <-e.wake:
		return true
	}
}

// trouble tells, of failures in a row, that Consul cannot be written to; nil: it can.
func (e *Exporter) trouble(err error, failures int) {
	if err != nil && failures < toldAfter && !errors.Is(err, errForeign) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	list, was := splitTrouble(e.status.Problems)
	if err == nil {
		if was != nil {
			e.cfg.Log.Info("the mesh's services are registered in Consul again")
		}
		e.status.Problems = list
		return
	}
	now := feed.Problem{Severity: feed.Warning, Source: e.source(), Object: exportObject, Text: e.explain(err), Since: time.Now()}
	if was != nil {
		now.Since = was.Since
	}
	if was == nil || was.Text != now.Text {
		e.cfg.Log.Warn("the mesh's services cannot be registered in Consul; what stands there stays for the lease", "error", now.Text)
	}
	e.status.Problems = append(list, now)
}

// exportObject is what problems about all of it are about.
const exportObject = "export"

// splitTrouble parts what trouble has told from the others.
func splitTrouble(list []feed.Problem) (others []feed.Problem, told *feed.Problem) {
	for _, p := range list {
		if p.Object == exportObject {
			told = &p
		} else {
			others = append(others, p)
		}
	}
	return others, told
}

// explain says what an error means, and what to do.
func (e *Exporter) explain(err error) string {
	if errors.Is(err, errForeign) || errors.Is(err, errLeaseLost) {
		return err.Error()
	}
	if denied(err) {
		x := e.cfg.Options.Export
		return fmt.Sprintf("Consul refuses the token (%s): for what export needs the one in tokenFile (%s) wants node %q, session %q and key %q with write, and service with write for the names that are registered",
			consulhttp.OneLine(err.Error()), orNone(e.cfg.Options.TokenFile), x.node(), x.node(), x.lease())
	}
	return e.client.explain(err)
}

func (e *Exporter) source() string { return "consul:" + e.cfg.Name }
