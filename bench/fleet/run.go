package fleet

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

// RunConfig is one measurement.
type RunConfig struct {
	// Shape is what the server has.
	Shape Shape
	// Addr is the server's ADS address, PID its process.
	Addr string
	PID  int
	// Authority gives every proxy a certificate to speak mutual TLS with. Nil: without TLS.
	Authority *Authority
	// Proxies is the size of the fleet.
	Proxies int
	// Timeout is the longest wait of one phase.
	Timeout time.Duration
	// Changes are made one after the other.
	Changes []Change
	// Settle is how long a phase goes on after the last proxy, so that what the server still does
	// counts. Default 2s.
	Settle time.Duration
	// Report receives every phase as it ends; may be nil.
	Report func(Figures)
}

// Change is a change of the mesh that is measured.
type Change struct {
	Phase string
	// Type is the type of the resources that it changes, and Proxies how many proxies receive them.
	Type    string
	Proxies int
	// Rounds is how often it is made.
	Rounds int
	// Make makes it. Just before what closes the phase, it calls await with a text that is then in the
	// changed resources.
	Make func(ctx context.Context, round int, await func(marker string)) error
}

// Figures are what one phase cost.
type Figures struct {
	Phase string
	// Missing proxies did not converge in time.
	Missing int
	// MaxMs is the milliseconds from the change to the last proxy.
	MaxMs float64
	// ServerCPU is the server's CPU seconds in the phase, PeakMB its memory at its peak so far.
	ServerCPU, PeakMB float64
	// RecvMB is what the fleet received.
	RecvMB float64
}

// Result is one measurement: its phases in order, rounds one by one.
type Result struct {
	Phases []Figures
	// LostStreams counts streams that ended or were refused; LastError is why, for example.
	LostStreams int64
	LastError   string
}

// fleet is a measurement that runs.
type fleet struct {
	*Simulator
	cfg     RunConfig
	proxies []*proxy
	out     Result
}

// Run connects a fleet, makes the changes and returns what they cost. A proxy that does not
// converge is counted, not an error.
func Run(ctx context.Context, cfg RunConfig) (Result, error) {
	cfg.Settle = cmp.Or(cfg.Settle, 2*time.Second)
	f := &fleet{Simulator: NewSimulator(), cfg: cfg}
	ready := make(chan time.Duration, cfg.Proxies)
	if err := f.make(func(d time.Duration) { ready <- d }); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := f.phase(ctx, "connect", cfg.Proxies, ready, func() error {
		for _, p := range f.proxies {
			wg.Go(func() { p.run(ctx, cfg.Addr) })
		}
		return nil
	}); err != nil {
		return Result{}, err
	}
	if err := f.changes(ctx); err != nil {
		return Result{}, err
	}
	for _, p := range f.proxies {
		f.out.LostStreams += p.lost.Load()
		if err := p.lastErr.Load(); err != nil {
			f.out.LastError = (*err).Error()
		}
	}
	return f.out, nil
}

func (f *fleet) make(onReady func(time.Duration)) error {
	for i := range f.cfg.Proxies {
		node, err := f.cfg.Shape.node(i)
		if err != nil {
			return err
		}
		secure, err := f.cfg.Authority.Client(f.cfg.Shape, i)
		if err != nil {
			return err
		}
		f.proxies = append(f.proxies, f.proxy(node, secure, onReady))
	}
	return nil
}

// changes makes each change and measures it, round by round.
func (f *fleet) changes(ctx context.Context) error {
	for _, c := range f.cfg.Changes {
		for round := range c.Rounds {
			seen := make(chan time.Duration, len(f.proxies))
			await := func(marker string) {
				f.current.Store(&watch{marker: []byte(marker), typeURL: c.Type, seen: seen, start: time.Now()})
			}
			if err := f.phase(ctx, c.Phase, c.Proxies, seen, func() error {
				return c.Make(ctx, round, await)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// phase does something, waits for one latency from each of expect proxies, settles, and reads the
// cost.
func (f *fleet) phase(ctx context.Context, name string, expect int, seen <-chan time.Duration, do func() error) error {
	before, err := CostOf(f.cfg.PID)
	if err != nil {
		return err
	}
	received := f.received()
	if err := do(); err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	arrived, last := f.collect(ctx, expect, seen)
	if !task.Sleep(ctx, f.cfg.Settle) {
		return ctx.Err()
	}
	after, err := CostOf(f.cfg.PID)
	if err != nil {
		return err
	}
	fig := Figures{Phase: name, Missing: expect - arrived, MaxMs: float64(last.Microseconds()) / 1000,
		ServerCPU: after.CPU - before.CPU, PeakMB: after.PeakMB, RecvMB: float64(f.received()-received) / 1e6}
	f.out.Phases = append(f.out.Phases, fig)
	if f.cfg.Report != nil {
		f.cfg.Report(fig)
	}
	return nil
}

// collect returns how many proxies report in time, and the latency of the last one.
func (f *fleet) collect(ctx context.Context, expect int, seen <-chan time.Duration) (n int, last time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	for n < expect {
		select {
		case d := <-seen:
			n, last = n+1, max(last, d)
		case <-ctx.Done():
			return n, last
		}
	}
	return n, last
}

// received is how many bytes the fleet received so far.
func (f *fleet) received() int64 {
	var n int64
	for _, p := range f.proxies {
		n += p.received.Load()
	}
	return n
}
