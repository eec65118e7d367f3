package probe

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// Health is the state of the workload.
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
	// Listens returns the addresses where Envoy listens, host:port, for a workload whose
	// connections are not intercepted. Nil: they are intercepted.
	Listens func(context.Context) (map[string]bool, error)
	// Unit returns why a systemd unit is not active. known is false if systemd does not answer.
	Unit func(ctx context.Context, name string) (why error, known bool)
	// Report receives each change of the health.
	Report func(Health)
	Log    hclog.Logger
}

// Prober checks the application as the control plane says, and reports changes of its health. A
// changed check starts with the known health, so that an edit of a WorkloadGroup does not remove a
// healthy workload from the endpoints.
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

// State describes for people how the application is checked.
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

// Set replaces the check by the group's probe, which may be empty. Nil: the control plane sent
// none. It returns why the probe is refused. Not safe for concurrent use.
func (p *Prober) Set(probe *networking.ReadinessProbe) error {
	c := p.cfg.read(probe)
	select {
	case <-p.updates: // not used yet
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

// portsWait is how long a workload without checks waits until it is healthy. At the first
// registration the ports arrive a moment after an empty answer.
const portsWait = time.Second

// Run checks until ctx ends. It reports nothing before the control plane or the cache file has a
// check.
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
			case c.refused != nil && p.check == nil: // there is no previous one
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
	var by []string
	if c.unit != "" {
		by = append(by, "the unit "+plain(c.unit)+" has to be active")
	}
	ports := p.cfg.CheckPorts && len(c.ports) > 0
	switch {
	case c.probe != nil:
		var text string
		run, text = p.method(c.probe, p.cfg.Addresses[0])
		by = append(by, "probed as its group says, by "+text)
	case ports:
		by = append(by, portsText(c.ports)+" checked")
	}
	p.setState(State{By: strings.Join(by, "; ")})
	if p.once = nil; len(by) == 0 {
		p.cfg.Log.Info("the application is not checked and counts as healthy: " +
			"it has neither a probe nor ports that services select")
		return
	}
	p.cfg.Log.Info("the application is checked", "how", by)
	var inactive error // systemd's last answer about the unit
	answered := false
	p.once = func(ctx context.Context) (states registry.PortStates, err error) {
		if ports {
			states, err = p.ports.check(ctx, c.ports)
		}
		if run != nil {
			states, err = states.Without(registry.PortClosed), run(ctx) // the probe decides about the health
		}
		if c.unit != "" {
			if now, known := p.cfg.Unit(ctx, c.unit); known || !answered {
				inactive, answered = now, known
			}
			err = errors.Join(inactive, err)
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

// counter turns results into a health by thresholds.
type counter struct {
	up, down int // thresholds
	known    bool
	healthy  bool // the latest result while known is false
	row      int  // results in a row that contradict the health
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
