package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/registry"
)

// prober probes the application and reports changes: by the probe of the settings, or by that of the workload's group, as it
// is told. Another probe goes on from what is known: an edit of a group takes no workload out of the endpoints that is well.
type prober struct {
	// The following fields are set once.
	own    string                                   // the workload's address
	way    func(*Probe) func(context.Context) error // how one asks; tests have others
	unit   func(context.Context, string) error      // whether a unit is active; tests have others
	ports  *portChecker                             // nil: ports are not checked
	told   <-chan groupNews                         // nil: the settings say it
	report func(Health)
	log    hclog.Logger

	// The following fields are changed by Run alone, while nobody asks.
	probe   Probe // with defaults; without a way: none
	key     string
	once    checkFunc // nil: there is nothing to check
	decided bool      // probe holds, and is not only the zero value
	counter counter
	last    Health // as reported

	mu    sync.Mutex
	state probing // guarded by mu
}

// portsWait is how long a workload that has just started and has no ports waits before it counts as well.
const portsWait = time.Second

// checkFunc checks the application once. It returns the states of its ports, and why it is not well.
type checkFunc func(context.Context) (registry.PortStates, error)

// probing is how the application is probed, for people.
type probing struct {
	// by says how; empty: not at all, or not known yet.
	by string
	// refused is why the group's latest probe is not used; nil: it is.
	refused *probeRefusal
}

// newProber makes one for settings that Complete has accepted; report is called with the first state and with each other one.
// told brings the probe of the workload's group, for settings that follow it.
// listens says where Envoy listens.
func newProber(s *Settings, told <-chan groupNews, listens listensFunc, report func(Health), log hclog.Logger) *prober {
	p := &prober{own: s.Workload.Addresses[0], report: report, log: log.Named("probe")}
	p.way = func(one *Probe) func(context.Context) error { return one.try(p.own) }
	p.unit = unitActive
	if s.followsGroup() {
		p.told = told
		if s.Probe.CheckPorts {
			p.ports = &portChecker{own: s.own(), none: s.Workload.Interception == "none" && s.Workload.Type == "sidecar", listens: listens}
		}
		return p
	}
	p.use(groupNews{probe: s.Probe}, "as its own settings say")
	return p
}

// followsGroup says whether the probe of the workload's group counts.
func (s *Settings) followsGroup() bool { return s.Workload.Group != "" && !s.Probe.set() && !s.Dev }

// use makes a probe the one that holds. how begins what is said of it.
func (p *prober) use(n groupNews, how string) {
	p.probe, p.key, p.once, p.decided = n.probe.withDefaults(), n.key, nil, true
	p.counter.up, p.counter.down, p.counter.row = p.probe.SuccessThreshold, p.probe.FailureThreshold, 0
	if !n.probe.set() { // what is checked then is this machine's own, and costs little
		p.probe.Period, p.probe.FailureThreshold = time.Second, 1
		p.counter.up, p.counter.down = 1, 1
	}
	var by []string
	if p.once = p.checks(n); n.unit != "" {
		by = append(by, "the unit "+plain(n.unit)+" has to be active")
	}
	switch {
	case n.probe.set():
		by = append(by, "probed "+how+", by "+n.probe.text(p.own))
	case p.ports != nil && len(n.ports) > 0:
		by = append(by, portsText(n.ports)+" checked")
	}
	p.note(probing{by: strings.Join(by, "; ")})
}

// checks makes one of all that is to be checked; nil: nothing is.
func (p *prober) checks(n groupNews) checkFunc {
	var way func(context.Context) error
	if n.probe.set() {
		way = p.way(&n.probe)
	}
	ports := p.ports != nil && len(n.ports) > 0
	if way == nil && n.unit == "" && !ports {
		return nil
	}
	return func(ctx context.Context) (states registry.PortStates, err error) {
		if ports {
			states, err = p.ports.check(ctx, n.ports)
		}
		if way != nil {
			states, err = states.Without(registry.PortClosed), way(ctx) // the probe says how the application is
		}
		if n.unit != "" {
			err = errors.Join(p.unit(ctx, n.unit), err)
		}
		return states, err
	}
}

// note keeps how the application is probed.
func (p *prober) note(now probing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = now
}

// State says how the application is probed.
func (p *prober) State() probing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Run probes until ctx ends. Without a way to probe the application is reported as well; nothing is reported before it is
// known which of the two it is.
func (p *prober) Run(ctx context.Context) error {
	start := time.Now()
	for {
		asking, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.ask(asking, start)
		}()
		n, ok := p.other(ctx)
		end()
		<-done
		if !ok {
			return nil
		}
		p.use(n, "as its group says")
		if by := p.State().by; by != "" {
			p.log.Info("the application is checked", "how", by)
		} else {
			p.log.Info("the application is not checked and counts as well: it has neither a probe nor ports that services select")
		}
	}
}

// other waits for another probe. Not ok: ctx ended.
func (p *prober) other(ctx context.Context) (n groupNews, ok bool) {
	for {
		select {
		case <-ctx.Done():
			return groupNews{}, false
		case n := <-p.told:
			now := p.State()
			now.refused = n.refused
			p.note(now)
			switch {
			case n.refused == nil && (!p.decided || n.key != p.key):
				return n, true
			case n.refused != nil && !p.decided: // there is none to go on with
				p.report(Health{Reason: n.refused.Error()})
			}
		}
	}
}

// ask asks by the probe that holds until ctx ends. start is when the agent began to probe.
func (p *prober) ask(ctx context.Context, start time.Time) {
	switch {
	case !p.decided:
		return
	case p.once == nil:
		// A workload that registers for the first time gets its ports a moment after an empty answer.
		if p.ports != nil && !p.counter.known && !sleep(ctx, portsWait) {
			return
		}
		p.counter.known, p.counter.healthy = true, true
		p.tell(Health{Healthy: true})
		return
	}
	for wait := time.Until(start.Add(p.probe.InitialDelay)); sleep(ctx, wait); wait = p.probe.Period {
		one, cancel := context.WithTimeout(ctx, p.probe.Timeout)
		states, err := p.once(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		h, changed := p.counter.count(err)
		if !changed {
			if h = p.last; err != nil && !h.Healthy && !p.probe.set() {
				h.Reason = err.Error()
			}
		}
		if h.Ports = states; p.counter.known && (changed || h != p.last) {
			p.tell(h)
		}
	}
}

// tell logs and reports another state.
func (p *prober) tell(h Health) {
	switch {
	case !h.Healthy:
		p.log.Warn("the application is not well", "reason", h.Reason)
	case h.Ports != "":
		p.log.Info("the application is well", "ports", h.Ports)
	default:
		p.log.Info("the application is well")
	}
	p.last = h
	p.report(h)
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
