package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// setup is one mesh and one fleet.
type setup struct {
	fleet.Shape
	Proxies int
	// TLS says that proxies connect by mutual TLS, each with a certificate of its own.
	TLS bool
	// Kubernetes says that the mesh is a cluster.
	Kubernetes bool
}

// title names a setup to people.
func (c setup) title() string {
	scope := "unscoped"
	if c.Scoped {
		scope = fmt.Sprintf("scoped to %d namespaces", c.Namespaces)
	}
	title := fmt.Sprintf("%d services × %d endpoints, %d proxies, %s", c.Services, c.Endpoints, c.Proxies, scope)
	if c.Kubernetes {
		title += ", Kubernetes"
	}
	if c.TLS {
		title += ", mutual TLS"
	}
	if c.Filters > 0 {
		title += fmt.Sprintf(", %d EnvoyFilters", c.Filters)
	}
	if c.Policies > 0 {
		title += fmt.Sprintf(", strict, %d policies", c.Policies)
	}
	return title
}

// comparison is what a setup cost ashored and the floor.
type comparison struct {
	setup
	ours, floor fleet.Result
}

// compareAll measures the setups and returns their tables.
func (b *bench) compareAll(ctx context.Context, setups []setup) (string, error) {
	var text strings.Builder
	for _, c := range setups {
		say("\n%s", c.title())
		start := func() (*process, error) { return b.start(ctx, c) }
		out, err := b.compare(ctx, c, start, start)
		if err != nil {
			return "", err
		}
		text.WriteString(out.report())
	}
	return text.String(), nil
}

// compare measures the floor of the very bytes that ashored sends, and ashored on a fresh mesh.
// record starts the ashored whose bytes the floor sends, and start the one that is measured.
func (b *bench) compare(ctx context.Context, c setup, record, start func() (*process, error)) (comparison, error) {
	out := comparison{setup: c}
	recorded, err := record()
	if err != nil {
		return out, err
	}
	floor, err := b.startFloor(ctx, recorded)
	recorded.stop()
	if err != nil {
		return out, err
	}
	say("  floor")
	if out.floor, err = measure(ctx, c, floor); err != nil {
		return out, err
	}
	ashored, err := start()
	if err != nil {
		return out, err
	}
	say("  ashored")
	out.ours, err = measure(ctx, c, ashored)
	return out, err
}

// measure runs a fleet against p, and stops p.
func measure(ctx context.Context, c setup, p *process) (fleet.Result, error) {
	defer p.stop()
	defer debug.FreeOSMemory() // the garbage of one fleet is not the next one's
	a, err := p.mesh.authority(ctx)
	if err != nil {
		return fleet.Result{}, err
	}
	run := fleet.RunConfig{Shape: c.Shape, Addr: p.addr, PID: p.pid(), Authority: a, Proxies: c.Proxies,
		Timeout: 2 * time.Minute, Report: func(f fleet.Figures) {
			say("    %-8s %6.3f CPU-s  %8.1f ms  %7.1f MB  %d missing", f.Phase, f.ServerCPU, f.MaxMs, f.PeakMB, f.Missing)
		}}
	if c.Kubernetes {
		run.Changes, run.Settle = clusterChanges(c, p), 200*time.Millisecond
	} else {
		run.Changes = c.FileChanges(p.mesh.Dir, c.Proxies, 5, 50)
	}
	return fleet.Run(ctx, run)
}

// start starts ashored on a fresh mesh, with TLS with an authority that signs for the proxies too.
func (b *bench) start(ctx context.Context, c setup) (*process, error) {
	m, err := b.newMesh(c.Shape)
	if err != nil {
		return nil, err
	}
	if c.TLS {
		m.AuthorityDir = filepath.Join(filepath.Dir(m.Dir), "authority")
		if err := fleet.WriteAuthority(m.AuthorityDir); err != nil {
			return nil, err
		}
	}
	return b.startAshored(ctx, m, c.TLS)
}

// newMesh writes a fresh folder of configuration.
func (b *bench) newMesh(s fleet.Shape) (mesh, error) {
	dir, err := os.MkdirTemp(b.work, "mesh")
	m := mesh{Shape: s, Dir: filepath.Join(dir, "files")}
	if err != nil {
		return m, err
	}
	return m, s.Write(m.Dir)
}

// target is what is measured of which phase, and the most that it may be: factor times what it is
// compared with, and plus.
type target struct {
	phase, what, unit string
	value             func(fleet.Figures) float64
	factor, plus      float64
	// quantile of all rounds. Default 0.5, the median.
	quantile float64
}

func serverCPU(f fleet.Figures) float64 { return f.ServerCPU }
func last(f fleet.Figures) float64      { return f.MaxMs }
func peak(f fleet.Figures) float64      { return f.PeakMB }
func received(f fleet.Figures) float64  { return f.RecvMB }

// targets are those of a comparison.
func (c comparison) targets() []target {
	if c.Kubernetes {
		return []target{
			{"readiness", "server CPU", "s", serverCPU, 3, 0.02, 0}, {"readiness", "last proxy, median", "ms", last, 0, 20, 0},
			{"readiness", "last proxy, 99 %", "ms", last, 0, 20, 0.99}, {"rolling", "server CPU", "s", serverCPU, 2, 0, 0},
		}
	}
	all := []target{
		{"connect", "server CPU", "s", serverCPU, 2, 0, 0}, {"connect", "last proxy", "ms", last, 1.2, 0, 0},
		{"endpoint", "server CPU", "s", serverCPU, 3, 0.02, 0}, {"endpoint", "last proxy", "ms", last, 1, 20, 0},
		{"route", "server CPU", "s", serverCPU, 2, 0, 0}, {"route", "last proxy", "ms", last, 2, 0, 0},
		{"churn", "server CPU", "s", serverCPU, 2, 0, 0}, {"churn", "memory at its peak", "MB", peak, 1, 150, 0},
	}
	if c.Policies > 0 {
		all = append(all, target{"policy", "server CPU", "s", serverCPU, 3, 0.02, 0},
			target{"policy", "last proxy", "ms", last, 1, 20, 0})
	}
	return all
}

// report is the table of a comparison.
func (c comparison) report() string {
	t := newTable(c.title(), "phase", "measure", "ashored:", "floor:", "ratio:", "at most", "")
	for _, k := range c.targets() {
		q := cmp.Or(k.quantile, 0.5)
		v, w := quantile(c.ours, k.phase, q, k.value), quantile(c.floor, k.phase, q, k.value)
		t.row(k.phase, k.what, number(v, k.unit), number(w, k.unit), fmt.Sprintf("%.2f", v/w), k.limit(),
			judge(v <= k.factor*w+k.plus && missing(c.ours, k.phase) <= missing(c.floor, k.phase)))
	}
	fmt.Fprintf(t, "\nReceived while connecting: %.0f MB from ashored, %.0f MB from the floor.\n",
		quantile(c.ours, "connect", 0.5, received), quantile(c.floor, "connect", 0.5, received))
	for name, r := range map[string]fleet.Result{"ashored": c.ours, "the floor": c.floor} {
		if n := missing(r, ""); n > 0 || r.LostStreams > 0 {
			fmt.Fprintf(t, "\nWith %s %d proxies did not converge in time and %d streams were lost (%s).\n", name,
				n, r.LostStreams, r.LastError)
		}
	}
	return t.String()
}

func (k target) limit() string {
	factor, plus := fmt.Sprintf("%g ×", k.factor), fmt.Sprintf("+ %g %s", k.plus, k.unit)
	switch {
	case k.plus == 0:
		return factor
	case k.factor == 0:
		return fmt.Sprintf("%g %s", k.plus, k.unit)
	case k.factor == 1:
		return plus
	}
	return factor + " " + plus
}

// quantile is a quantile of a figure over the rounds of a phase: 0.5 is the median.
func quantile(r fleet.Result, phase string, q float64, value func(fleet.Figures) float64) float64 {
	var all []float64
	for _, f := range r.Phases {
		if f.Phase == phase {
			all = append(all, value(f))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)))]
}

// missing is how many proxies did not converge in the rounds of a phase; empty: of all phases.
func missing(r fleet.Result, phase string) (n int) {
	for _, f := range r.Phases {
		if phase == "" || f.Phase == phase {
			n += f.Missing
		}
	}
	return n
}
