package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// portsWait is how long a workload without checks waits before it is healthy: one that registers
// for the first time gets its ports a moment after an empty answer.
const portsWait = time.Second

// prober checks the application as the control plane says and reports changes of its health. A
// changed check starts from the known health: an edit of a WorkloadGroup does not remove a healthy
// workload from the endpoints.
type prober struct {
	// the workload's address; immutable
	own string
	// immutable; tests replace it
	method func(p *networking.ReadinessProbe, own string) (func(context.Context) error, string)
	// immutable; why a unit is not active
	unit func(context.Context, string) (why error, known bool)
	// immutable; nil: ports are not checked
	ports   *portChecker
	updates <-chan appCheck // immutable
	report  func(Health)    // immutable
	log     hclog.Logger    // immutable

	// The following fields are changed by Run while no check runs.
	check   *appCheck // nil: the control plane sent none yet
	once    checkFunc // nil: there is nothing to check
	counter counter
	last    Health // as reported

	mu    sync.Mutex
	state probeState // guarded by mu
}

// checkFunc checks the application once. It returns the states of its ports, and why it is
// unhealthy.
type checkFunc func(context.Context) (registry.PortStates, error)

// probeState says how the application is checked, for people.
type probeState struct {
	// by is empty when nothing is checked, or not known yet.
	by string
	// refused is why the latest probe of the group is not used; nil: it is used.
	refused error
}

// newProber makes one for a workload with a group. updates delivers its checks. listens says where
// Envoy listens.
func newProber(s *Settings, updates <-chan appCheck, listens listensFunc, report func(Health),
	log hclog.Logger) *prober {
	p := &prober{own: s.Workload.Addresses[0], method: probeMethod, unit: (&systemd{}).unitActive, updates: updates,
		report: report, log: log.Named("probe")}
	if s.Probe.CheckPorts {
		p.ports = &portChecker{own: s.own(), none: s.Workload.Interception == "none" && s.Workload.Type == "sidecar",
			listens: listens}
	}
	return p
}

// use replaces the check.
func (p *prober) use(c appCheck) {
	p.check = &c
	plan := c.schedule()
	p.counter.up, p.counter.down, p.counter.row = plan.up, plan.down, 0
	var run func(context.Context) error
	var by []string
	if c.unit != "" {
		by = append(by, "the unit "+plain(c.unit)+" has to be active")
	}
	ports := p.ports != nil && len(c.ports) > 0
	switch {
	case c.probe != nil:
		var text string
		run, text = p.method(c.probe, p.own)
		by = append(by, "probed as its group says, by "+text)
	case ports:
		by = append(by, portsText(c.ports)+" checked")
	}
	p.setState(probeState{by: strings.Join(by, "; ")})
	if p.once = nil; len(by) == 0 {
		return
	}
	var inactive error // of the unit, as systemd answered last
	answered := false
	p.once = func(ctx context.Context) (states registry.PortStates, err error) {
		if ports {
			states, err = p.ports.check(ctx, c.ports)
		}
		if run != nil {
			states, err = states.Without(registry.PortClosed), run(ctx) // the probe decides about the health
		}
		if c.unit != "" {
			if now, known := p.unit(ctx, c.unit); known || !answered {
				inactive, answered = now, known
			}
			err = errors.Join(inactive, err)
		}
		return states, err
	}
}

func (p *prober) setState(s probeState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

// State says how the application is checked.
func (p *prober) State() probeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Run checks until ctx ends. Nothing is reported before the control plane, or the cache file, has a
// check.
func (p *prober) Run(ctx context.Context) error {
	start := time.Now()
	for {
		checking, end := context.WithCancel(ctx)
		var checks sync.WaitGroup
		checks.Go(func() { p.run(checking, start) })
		c, ok := p.next(ctx)
		end()
		checks.Wait()
		if !ok {
			return nil
		}
		p.use(c)
		if by := p.State().by; by != "" {
			p.log.Info("the application is checked", "how", by)
		} else {
			p.log.Info("the application is not checked and counts as healthy: it has neither a probe nor ports that services select")
		}
	}
}

// next waits for another check. Not ok: ctx ended.
func (p *prober) next(ctx context.Context) (c appCheck, ok bool) {
	for {
		select {
		case <-ctx.Done():
			return appCheck{}, false
		case c := <-p.updates:
			p.setState(probeState{p.State().by, c.refused})
			switch {
			case c.refused == nil && (p.check == nil || c.key != p.check.key):
				return c, true
			case c.refused != nil && p.check == nil: // there is no previous one to go on with
				p.report(Health{Reason: c.refused.Error()})
			}
		}
	}
}

// run checks until ctx ends. start is when the agent started.
func (p *prober) run(ctx context.Context, start time.Time) {
	switch {
	case p.check == nil:
		return
	case p.once == nil:
		if p.ports != nil && !p.counter.known && !sleep(ctx, portsWait) {
			return
		}
		p.counter.known, p.counter.healthy = true, true
		p.changed(Health{Healthy: true})
		return
	}
	plan := p.check.schedule()
	for wait := time.Until(start.Add(plan.delay)); sleep(ctx, wait); wait = plan.period {
		one, cancel := context.WithTimeout(ctx, plan.timeout)
		states, err := p.once(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		h, changed := p.counter.count(err)
		if !changed {
			if h = p.last; err != nil && !h.Healthy {
				h.Reason = err.Error()
			}
		}
		if h.Ports = states; p.counter.known && (changed || h != p.last) {
			p.changed(h)
		}
	}
}

// changed logs and reports another health.
func (p *prober) changed(h Health) {
	if h.Healthy {
		p.log.Info("the application is healthy", "ports", h.Ports)
	} else {
		p.log.Warn("the application is unhealthy", "reason", h.Reason)
	}
	p.last = h
	p.report(h)
}

// counter turns results into a health by thresholds.
type counter struct {
	up, down int // thresholds
	known    bool
	healthy  bool
	row      int // results in a row that contradict the health
}

// count adds one result; changed says that h differs from before, or is the first.
func (c *counter) count(err error) (h Health, changed bool) {
	ok := err == nil
	if c.known && ok == c.healthy {
		c.row = 0
		return Health{}, false
	}
	if !c.known && ok != c.healthy {
		c.row, c.healthy = 0, ok
	}
	c.row++
	need := c.down
	if ok {
		need = c.up
	}
	if c.row < need {
		return Health{}, false
	}
	c.known, c.healthy, c.row = true, ok, 0
	h.Healthy = ok
	if err != nil {
		h.Reason = err.Error()
	}
	return h, true
}

// sleep waits. It returns false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
