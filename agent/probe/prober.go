package probe

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// Health is the health of the application.
type Health struct {
	// Reason is why it is unhealthy; empty: it is healthy.
	Reason string
	// Ports are the states of the workload's ports.
	Ports registry.PortStates
}

// Config is the configuration of a Prober.
type Config struct {
	Settings
	// Addresses are the workload's. Probes that name no host connect to the first one.
	Addresses []string
	// Listens returns the addresses that Envoy listens on, host:port. It is set only if the
	// workload's connections are not intercepted.
	Listens func(context.Context) (map[string]bool, error)
	// Report receives each change of the health.
	Report func(Health)
	Log    hclog.Logger
}

// Prober checks the application as the control plane configures, and reports changes of its health.
// When the check changes, the last known health stays until a new result changes it. So an edit of
// a WorkloadGroup does not remove a healthy workload from the endpoints.
type Prober struct {
	cfg Config // immutable
	// immutable; tests replace it
	method  func(p *networking.ReadinessProbe, own string) (func(context.Context) error, string)
	ports   portChecker
	updates chan check // capacity 1

	// The following fields belong to Run.
	check   *check // nil: the control plane sent none yet
	once    checkFunc
	counter counter
	reason  string  // of the last failure
	last    *Health // last report; nil: none

	mu    sync.Mutex
	state State // guarded by mu
}

// checkFunc checks the application once. It returns the states of its ports, and the reason if it
// is unhealthy. Nil: there is nothing to check.
type checkFunc func(context.Context) (registry.PortStates, error)

// State describes how the application is checked. It is for status output.
type State struct {
	// By is how it is checked; empty: not at all, or not known yet.
	By string
	// Refused is why the group's latest probe is refused; nil: it is not.
	Refused error
}

// New returns a Prober. Run starts it.
func New(c Config) *Prober {
	c.Log = c.Log.Named("probe")
	return &Prober{cfg: c, method: method, ports: newPortChecker(c), updates: make(chan check, 1)}
}

// Set replaces the check with what the control plane sent: the group's probe, which may be empty or
// nil. It returns why the probe is refused. Not safe for concurrent use.
func (p *Prober) Set(probe *networking.ReadinessProbe) error {
	c := p.cfg.read(probe)
	select {
	case <-p.updates: // replaces an update that Run has not received
	default:
	}
	p.updates <- c
	return c.refused
}

// State returns how the application is checked.
func (p *Prober) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Prober) setState(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

// portsWait delays the first report of a workload without checks. At the first registration the
// control plane sends an empty check, and the ports shortly after.
const portsWait = time.Second

// Run checks the application until ctx ends. It reports nothing until Set was called.
func (p *Prober) Run(ctx context.Context) error {
	start := time.Now()
	var next <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-p.updates:
			p.setState(State{p.State().By, c.refused})
			switch {
			case c.refused != nil && p.check == nil: // no previous check stays in use
				p.cfg.Report(Health{Reason: c.refused.Error()})
			case c.refused == nil && (p.check == nil || !proto.Equal(c.sent, p.check.sent)):
				p.use(c)
				wait := time.Until(start.Add(c.schedule().delay))
				if p.once == nil && p.cfg.CheckPorts && !p.counter.known {
					wait = portsWait
				}
				next = time.After(wait)
			}
		case <-next:
			p.run(ctx)
			if next = nil; p.once != nil {
				next = time.After(p.check.schedule().period)
			}
		}
	}
}

// use replaces the check.
func (p *Prober) use(c check) {
	p.check = &c
	plan := c.schedule()
	p.counter.up, p.counter.down, p.counter.row = plan.up, plan.down, 0
	var run func(context.Context) error
	by := ""
	ports := p.cfg.CheckPorts && len(c.ports) > 0
	switch {
	case c.probe != nil:
		run, by = p.method(c.probe, p.cfg.Addresses[0])
		by = "probed as its group says, by " + by
	case ports:
		by = portsText(c.ports) + " checked"
	}
	p.setState(State{By: by})
	if p.once = nil; by == "" {
		p.cfg.Log.Info("the application is not checked and counts as healthy: " +
			"it has neither a probe nor ports that services select")
		return
	}
	p.cfg.Log.Info("the application is checked", "how", by)
	p.once = func(ctx context.Context) (states registry.PortStates, err error) {
		if ports {
			states, err = p.ports.check(ctx, c.ports)
		}
		if run != nil {
			states, err = states.Without(registry.PortClosed), run(ctx) // the probe decides the health
		}
		return states, err
	}
}

// run checks once, and reports a change of the health.
func (p *Prober) run(ctx context.Context) {
	h := Health{}
	if p.once == nil {
		p.counter.known, p.counter.healthy = true, true
	} else {
		one, cancel := context.WithTimeout(ctx, p.check.schedule().timeout)
		defer cancel()
		states, err := p.once(one)
		if p.counter.count(err == nil); ctx.Err() != nil || !p.counter.known {
			return
		}
		if h.Ports = states; err != nil {
			p.reason = err.Error()
		}
		if !p.counter.healthy {
			h.Reason = p.reason
		}
	}
	if p.last != nil && h == *p.last {
		return
	}
	if p.last = &h; h.Reason == "" {
		p.cfg.Log.Info("the application is healthy", "ports", h.Ports)
	} else {
		p.cfg.Log.Warn("the application is unhealthy", "reason", h.Reason)
	}
	p.cfg.Report(h)
}

// counter computes the health from results and thresholds.
type counter struct {
	up, down int  // thresholds
	known    bool // the health was decided at least once
	healthy  bool // the health if known; else the latest result
	row      int  // results in a row that contradict the health, or are equal while known is false
}

// count adds one result.
func (c *counter) count(ok bool) {
	if c.known && ok == c.healthy {
		c.row = 0
		return
	}
	if !c.known && ok != c.healthy {
		c.row, c.healthy = 0, ok
	}
	c.row++
	need := c.down
	if ok {
		need = c.up
	}
	if c.row >= need {
		c.known, c.healthy, c.row = true, ok, 0
	}
}
