package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// RunConfig is one measurement.
type RunConfig struct {
	// Shape is what was written into Dir.
	Shape Shape
	// Dir is the folder that the server reads; its files are changed.
	Dir string
	// Addr is the server's ADS address, PID its process.
	Addr string
	PID  int
	// Authority gives every proxy a certificate to speak mutual TLS with. Nil: without TLS.
	Authority *Authority
	// Proxies is the size of the fleet.
	Proxies int
	// Timeout is the longest wait of one phase.
	Timeout time.Duration
	// Rounds is how often each change is made; Churn how many services change in the churn phase.
	Rounds, Churn int
	// Settle is how long a phase goes on after the last proxy, so that what the server still does
	// counts. Default 2s.
	Settle time.Duration
	// Report receives every phase as it ends; may be nil.
	Report func(Figures)
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
	if cfg.Settle == 0 {
		cfg.Settle = 2 * time.Second
	}
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

// changes runs the phases that change files: each is a marker that a change brings into resources
// of one type.
func (f *fleet) changes(ctx context.Context) error {
	s, dir, expect := f.cfg.Shape, f.cfg.Dir, f.affected()
	edits := []struct {
		phase, typeURL, marker string
		expect                 int
		edit                   func(marker string) error
	}{
		{"endpoint", edsType, "172.16.0.%d", expect, func(ip string) error {
			return replace(dir, serviceName(0), s.serviceFile(0, ip)) // an address is text in an assignment
		}},
		{"route", rdsType, "marker-round-%d", expect, func(m string) error {
			return replace(dir, routeName(0), s.routeFile(0, m))
		}},
		{"policy", ecdsType, "marker-policy-%d", f.cfg.Proxies, func(m string) error {
			return replace(dir, policyName(0), s.policyFile(0, m))
		}},
	}
	if s.Policies == 0 {
		edits = edits[:2]
	}
	for _, e := range edits {
		for r := range f.cfg.Rounds {
			marker, seen := fmt.Sprintf(e.marker, r+1), make(chan time.Duration, len(f.proxies))
			if err := f.phase(ctx, e.phase, e.expect, seen, func() error {
				f.await(marker, e.typeURL, seen)
				return e.edit(marker)
			}); err != nil {
				return err
			}
		}
	}
	if f.cfg.Churn == 0 {
		return nil
	}
	return f.churn(ctx, expect)
}

// affected is how many proxies see a change of service 0: all, or those of its namespace.
func (f *fleet) affected() int {
	s := f.cfg.Shape
	if !s.Scoped {
		return f.cfg.Proxies
	}
	n := 0
	for i := range f.cfg.Proxies {
		if s.namespace(i%s.Services) == s.namespace(0) {
			n++
		}
	}
	return n
}

// await makes every proxy look for marker in resources of typeURL, and report to seen.
func (f *fleet) await(marker, typeURL string, seen chan time.Duration) {
	f.current.Store(&watch{marker: []byte(marker), typeURL: typeURL, seen: seen, start: time.Now()})
}

// churn changes many services at a fixed pace; the arrival of the last change closes the phase, and
// latency is counted from it.
func (f *fleet) churn(ctx context.Context, expect int) error {
	s := f.cfg.Shape
	const lastIP = "172.31.255.254"
	seen := make(chan time.Duration, len(f.proxies))
	return f.phase(ctx, "churn", expect, seen, func() error {
		last := 0
		for c := range f.cfg.Churn {
			// of namespace 0 when their number divides the services
			last = (c*7*s.Namespaces + s.Namespaces) % s.Services
			if err := replace(f.cfg.Dir, serviceName(last), s.serviceFile(last,
				fmt.Sprintf("172.20.%d.%d", c>>8, c&0xff))); err != nil {
				return err
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		f.await(lastIP, edsType, seen)
		return replace(f.cfg.Dir, serviceName(last), s.serviceFile(last, lastIP))
	})
}

// phase does something, waits for one latency from each of expect proxies, settles, and reads the
// cost.
func (f *fleet) phase(ctx context.Context, name string, expect int, seen <-chan time.Duration, do func() error) error {
	before, _, err := Cost(f.cfg.PID)
	if err != nil {
		return err
	}
	received := f.received()
	if err := do(); err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	arrived, last := f.collect(ctx, expect, seen)
	if err := wait(ctx, f.cfg.Settle); err != nil {
		return err
	}
	after, peak, err := Cost(f.cfg.PID)
	if err != nil {
		return err
	}
	fig := Figures{Phase: name, Missing: expect - arrived, MaxMs: float64(last.Microseconds()) / 1000,
		ServerCPU: after - before, PeakMB: peak, RecvMB: float64(f.received()-received) / 1e6}
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

// wait waits for d, or less when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
