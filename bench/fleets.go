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

// fleets measures the setups and returns their tables.
func (b *bench) fleets(ctx context.Context, setups []setup) (string, error) {
	var text strings.Builder
	var before comparison
	for _, c := range setups {
		say("\n%s", c.title())
		out, err := b.compare(ctx, c)
		if err != nil {
			return "", err
		}
		text.WriteString(out.report())
		if c.Filters > 0 {
			text.WriteString(out.patched(before))
		}
		before = out
	}
	return text.String(), nil
}

// patched compares with the same fleet without EnvoyFilters, which was measured before it.
func (c comparison) patched(without comparison) string {
	const most = 1.3
	v := median(c.ours, "connect", func(f fleet.Figures) float64 { return f.ServerCPU })
	w := median(without.ours, "connect", func(f fleet.Figures) float64 { return f.ServerCPU })
	return fmt.Sprintf("Connecting took %.2f times the server CPU of the same fleet without EnvoyFilters, at most %.1f: %s.\n\n",
		v/w, most, judge(v <= most*w))
}

// compare measures the floor of the very bytes that ashored sends, and ashored on a fresh mesh.
func (b *bench) compare(ctx context.Context, c setup) (comparison, error) {
	out := comparison{setup: c}
	recorded, err := b.start(ctx, c)
	if err != nil {
		return out, err
	}
	floor, err := b.startFloor(ctx, recorded)
	recorded.stop()
	if err != nil {
		return out, err
	}
	say("  floor")
	if out.floor, err = measure(ctx, floor, fleetRun(c, floor)); err != nil {
		return out, err
	}
	ashored, err := b.start(ctx, c)
	if err != nil {
		return out, err
	}
	say("  ashored")
	out.ours, err = measure(ctx, ashored, fleetRun(c, ashored))
	return out, err
}

// fleetRun are changes of the files that p serves.
func fleetRun(c setup, p *process) fleet.RunConfig {
	return fleet.RunConfig{Proxies: c.Proxies, Changes: c.FileChanges(p.mesh.Dir, c.Proxies, 5, 50),
		Report: func(f fleet.Figures) {
			say("    %-8s %6.3f CPU-s  %8.1f ms  %7.1f MB  %d missing", f.Phase, f.ServerCPU, f.MaxMs, f.PeakMB, f.Missing)
		}}
}

// measure runs a fleet against p, and stops p.
func measure(ctx context.Context, p *process, run fleet.RunConfig) (fleet.Result, error) {
	defer p.stop()
	defer debug.FreeOSMemory() // the garbage of one fleet is not the next one's
	a, err := p.mesh.authority(ctx)
	if err != nil {
		return fleet.Result{}, err
	}
	run.Shape, run.Addr, run.PID, run.Authority, run.Timeout = p.mesh.Shape, p.addr, p.pid(), a, 2*time.Minute
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

// targets are those of a comparison.
func (c comparison) targets() []target {
	cpu := func(f fleet.Figures) float64 { return f.ServerCPU }
	last := func(f fleet.Figures) float64 { return f.MaxMs }
	peak := func(f fleet.Figures) float64 { return f.PeakMB }
	if c.Kubernetes {
		return []target{
			{"readiness", "server CPU", "s", cpu, 3, 0.02, 0}, {"readiness", "last proxy, median", "ms", last, 0, 20, 0},
			{"readiness", "last proxy, 99 %", "ms", last, 0, 20, 0.99}, {"rolling", "server CPU", "s", cpu, 2, 0, 0},
		}
	}
	all := []target{
		{"connect", "server CPU", "s", cpu, 2, 0, 0}, {"connect", "last proxy", "ms", last, 1.2, 0, 0},
		{"endpoint", "server CPU", "s", cpu, 3, 0.02, 0}, {"endpoint", "last proxy", "ms", last, 1, 20, 0},
		{"route", "server CPU", "s", cpu, 2, 0, 0}, {"route", "last proxy", "ms", last, 2, 0, 0},
		{"churn", "server CPU", "s", cpu, 2, 0, 0}, {"churn", "memory at its peak", "MB", peak, 1, 150, 0},
	}
	if c.Policies > 0 {
		all = append(all, target{"policy", "server CPU", "s", cpu, 3, 0.02, 0},
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
		t.row(k.phase, k.what, k.number(v), k.number(w), fmt.Sprintf("%.2f", v/w), k.limit(),
			judge(v <= k.factor*w+k.plus && missing(c.ours, k.phase) <= missing(c.floor, k.phase)))
	}
	received := func(f fleet.Figures) float64 { return f.RecvMB }
	fmt.Fprintf(t, "\nReceived while connecting: %.0f MB from ashored, %.0f MB from the floor.\n",
		median(c.ours, "connect", received), median(c.floor, "connect", received))
	for name, r := range map[string]fleet.Result{"ashored": c.ours, "the floor": c.floor} {
		if n := missing(r, ""); n > 0 || r.LostStreams > 0 {
			fmt.Fprintf(t, "\nWith %s %d proxies did not converge in time and %d streams were lost (%s).\n", name,
				n, r.LostStreams, r.LastError)
		}
	}
	return t.String()
}

func (k target) number(v float64) string {
	if k.unit == "s" {
		return fmt.Sprintf("%.3f s", v)
	}
	return fmt.Sprintf("%.0f %s", v, k.unit)
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

// median is the median of a figure over the rounds of a phase.
func median(r fleet.Result, phase string, value func(fleet.Figures) float64) float64 {
	return quantile(r, phase, 0.5, value)
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
