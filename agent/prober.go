package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// prober probes the application and reports changes: by the probe of the settings, or by that of the workload's group, as it
// is told. Another probe goes on from what is known: an edit of a group takes no workload out of the endpoints that is well.
type prober struct {
	// The following fields are set once.
	own    string                                   // the workload's address
	way    func(*Probe) func(context.Context) error // how one asks; tests have others
	told   <-chan groupNews                         // nil: the settings say it
	report func(Health)
	log    hclog.Logger

	// The following fields are changed by Run alone, while nobody asks.
	probe   Probe // with defaults; without a way: none
	key     string
	once    func(context.Context) error // nil: there is no way
	decided bool                        // probe holds, and is not only the zero value
	counter counter

	mu    sync.Mutex
	state probing // guarded by mu
}

// probing is how the application is probed, for people.
type probing struct {
	// by says how; empty: not at all, or not known yet.
	by string
	// refused is why the group's latest probe is not used; nil: it is.
	refused *probeRefusal
}

// newProber makes one for settings that Complete has accepted; report is called with the first state and with each other one.
// told brings the probe of the workload's group, for settings that follow it.
func newProber(s *Settings, told <-chan groupNews, report func(Health), log hclog.Logger) *prober {
	p := &prober{own: s.Workload.Addresses[0], report: report, log: log.Named("probe")}
	p.way = func(one *Probe) func(context.Context) error { return one.try(p.own) }
	if s.followsGroup() {
		p.told = told
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
	now := probing{}
	if n.probe.set() {
		p.once = p.way(&n.probe)
		now.by = "probed " + how + ", by " + n.probe.text(p.own)
	}
	p.note(now)
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
			p.log.Info("the application is " + by)
		} else {
			p.log.Info("the application is not probed and counts as well: neither these settings nor the group have a probe")
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
		p.counter.known, p.counter.healthy = true, true
		p.report(Health{Healthy: true})
		return
	}
	for wait := time.Until(start.Add(p.probe.InitialDelay)); sleep(ctx, wait); wait = p.probe.Period {
		one, cancel := context.WithTimeout(ctx, p.probe.Timeout)
		err := p.once(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if h, changed := p.counter.count(err); changed {
			p.tell(h)
		}
	}
}

// tell logs and reports another state.
func (p *prober) tell(h Health) {
	if h.Healthy {
		p.log.Info("the application is well")
	} else {
		p.log.Warn("the application is not well", "reason", h.Reason)
	}
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
