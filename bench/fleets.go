package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// setup is one mesh and one fleet.
type setup struct {
	fleet.Shape
	Proxies int
	Delta   bool
	// TLS says that proxies connect by mutual TLS, each with a certificate of its own.
	TLS bool
}

// title names a setup to people.
func (c setup) title() string {
	way, scope := "delta", "unscoped"
	if !c.Delta {
		way = "state of the world"
	}
	if c.Scoped {
		scope = fmt.Sprintf("scoped to %d namespaces", c.Namespaces)
	}
	title := fmt.Sprintf("%d services × %d endpoints, %d proxies, %s, %s", c.Services, c.Endpoints, c.Proxies, way,
		scope)
	if c.TLS {
		title += ", mutual TLS"
	}
	if c.Policies > 0 {
		title += fmt.Sprintf(", strict, %d policies", c.Policies)
	}
	return title
}

// comparison is what a setup cost.
type comparison struct {
	setup
	ours fleet.Result
	// base is what it is compared with: the floor, or for state of the world ashored by delta.
	base fleet.Result
}

// fleets measures the setups, each with its floor or with delta, and returns their tables.
func (b *bench) fleets(ctx context.Context, setups []setup) (string, error) {
	var done []comparison
	var text strings.Builder
	for _, c := range setups {
		say("\n%s", c.title())
		out := comparison{setup: c}
		var err error
		if out.base, err = b.base(ctx, c, done); err != nil {
			return "", err
		}
		if out.ours, err = b.measure(ctx, c); err != nil {
			return "", err
		}
		done = append(done, out)
		text.WriteString(out.report())
	}
	return text.String(), nil
}

// base is the result to compare with: delta of the same size, which may be among done, for state of
// the world; else the floor of the very bytes that ashored sends.
func (b *bench) base(ctx context.Context, c setup, done []comparison) (fleet.Result, error) {
	if !c.Delta {
		c.Delta = true
		if i := slices.IndexFunc(done, func(d comparison) bool { return d.setup == c }); i >= 0 {
			return done[i].ours, nil
		}
		return b.measure(ctx, c)
	}
	recorded, err := b.start(ctx, c)
	if err != nil {
		return fleet.Result{}, err
	}
	floor, err := startFloor(b.self, recorded)
	if err = errors.Join(err, recorded.stop()); err != nil {
		return fleet.Result{}, err
	}
	say("  floor")
	result, err := load(ctx, b.self, c, floor)
	return result, errors.Join(err, floor.stop())
}

// measure measures ashored on a fresh mesh.
func (b *bench) measure(ctx context.Context, c setup) (fleet.Result, error) {
	s, err := b.start(ctx, c)
	if err != nil {
		return fleet.Result{}, err
	}
	say("  ashored")
	result, err := load(ctx, b.self, c, s)
	return result, errors.Join(err, s.stop())
}

// start starts ashored on a fresh mesh: in plaintext, or with TLS and an authority that signs for
// the proxies too.
func (b *bench) start(ctx context.Context, c setup) (*process, error) {
	m, err := b.newMesh(c.Shape)
	if err != nil {
		return nil, err
	}
	if c.TLS {
		m.authority = filepath.Join(filepath.Dir(m.dir), "authority")
		if err := fleet.WriteAuthority(m.authority); err != nil {
			return nil, err
		}
	}
	return startAshored(ctx, b.ashored, b.work, m, c.TLS)
}

// newMesh writes a fresh folder of configuration.
func (b *bench) newMesh(s fleet.Shape) (mesh, error) {
	dir, err := os.MkdirTemp(b.work, "mesh")
	m := mesh{Shape: s, dir: filepath.Join(dir, "files")}
	if err != nil {
		return m, err
	}
	return m, s.Write(m.dir)
}

// target is what is measured of which phase, and the most that it may be: factor times what it is
// compared with, and plus.
type target struct {
	phase, what, unit string
	value             func(fleet.Figures) float64
	factor, plus      float64
}

// targets are those of a comparison. Delta is compared with the floor.
func (c comparison) targets() []target {
	cpu := func(f fleet.Figures) float64 { return f.ServerCPU }
	last := func(f fleet.Figures) float64 { return f.MaxMs }
	peak := func(f fleet.Figures) float64 { return f.PeakMB }
	if !c.Delta {
		var all []target
		for _, phase := range []string{"connect", "endpoint", "route", "churn"} {
			all = append(all, target{phase, "server CPU", "s", cpu, 2, 0})
		}
		return all
	}
	all := []target{
		{"connect", "server CPU", "s", cpu, 2, 0}, {"connect", "last proxy", "ms", last, 1.2, 0},
		{"endpoint", "server CPU", "s", cpu, 3, 0.02}, {"endpoint", "last proxy", "ms", last, 1, 20},
		{"route", "server CPU", "s", cpu, 2, 0}, {"route", "last proxy", "ms", last, 2, 0},
		{"churn", "server CPU", "s", cpu, 2, 0}, {"churn", "memory at its peak", "MB", peak, 1, 150},
	}
	if c.Policies > 0 {
		all = append(all, target{"policy", "server CPU", "s", cpu, 3, 0.02},
			target{"policy", "last proxy", "ms", last, 1, 20})
	}
	return all
}

// report is the table of a comparison.
func (c comparison) report() string {
	base := "floor"
	if !c.Delta {
		base = "delta"
	}
	t := newTable(c.title(), "phase", "measure", "ashored:", base+":", "ratio:", "at most", "")
	for _, k := range c.targets() {
		ours, of := median(c.ours, k.phase), median(c.base, k.phase)
		v, w := k.value(ours), k.value(of)
		t.row(k.phase, k.what, k.number(v), k.number(w), fmt.Sprintf("%.2f", v/w), k.limit(),
			judge(v <= k.factor*w+k.plus && ours.Missing <= of.Missing))
	}
	fmt.Fprintf(t, "\nReceived while connecting: %.0f MB from ashored, %.0f MB from the other side.\n",
		median(c.ours, "connect").RecvMB, median(c.base, "connect").RecvMB)
	for name, r := range map[string]fleet.Result{"ashored": c.ours, "the other side": c.base} {
		missing := 0
		for _, f := range r.Phases {
			missing += f.Missing
		}
		if missing > 0 || r.LostStreams > 0 {
			fmt.Fprintf(t, "\nWith %s %d proxies did not converge in time and %d streams were lost (%s).\n", name,
				missing, r.LostStreams, r.LastError)
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
	case k.factor == 1:
		return plus
	}
	return factor + " " + plus
}

// median returns the figures of a phase: each the median over its rounds, and the sum of missing
// proxies.
func median(r fleet.Result, phase string) fleet.Figures {
	out := fleet.Figures{Phase: phase}
	var cpu, last, peak, received []float64
	for _, f := range r.Phases {
		if f.Phase == phase {
			cpu, last = append(cpu, f.ServerCPU), append(last, f.MaxMs)
			peak, received = append(peak, f.PeakMB), append(received, f.RecvMB)
			out.Missing += f.Missing
		}
	}
	if len(cpu) > 0 {
		out.ServerCPU, out.MaxMs, out.PeakMB, out.RecvMB = middle(cpu), middle(last), middle(peak), middle(received)
	}
	return out
}

// middle is the median.
func middle(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
