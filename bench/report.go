package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// check is one target: what is measured of which phase, and the most that it may be.
type check struct {
	phase, what, unit string
	value             func(fleet.Figures) float64
	// limit is the most, given what it is compared with, and its text.
	limit func(base float64) float64
	text  string
}

func cpu(f fleet.Figures) float64  { return f.ServerCPU }
func last(f fleet.Figures) float64 { return f.MaxMs }
func peak(f fleet.Figures) float64 { return f.PeakMB }

// times and plus make limits.
func times(factor, plus float64) func(float64) float64 {
	return func(base float64) float64 { return factor*base + plus }
}

// deltaChecks compare delta with the floor; policies says that policies change too.
func deltaChecks(policies bool) []check {
	all := []check{
		{"connect", "server CPU", "s", cpu, times(2, 0), "2 ×"},
		{"connect", "last proxy", "ms", last, times(1.2, 0), "1.2 ×"},
		{"endpoint", "server CPU", "s", cpu, times(3, 0.02), "3 × + 0.02 s"},
		{"endpoint", "last proxy", "ms", last, times(1, 20), "+ 20 ms"},
		{"route", "server CPU", "s", cpu, times(2, 0), "2 ×"},
		{"route", "last proxy", "ms", last, times(2, 0), "2 ×"},
		{"churn", "server CPU", "s", cpu, times(2, 0), "2 ×"},
		{"churn", "memory at its peak", "MB", peak, times(1, 150), "+ 150 MB"},
	}
	if !policies {
		return all
	}
	return append(all, check{"policy", "server CPU", "s", cpu, times(3, 0.02), "3 × + 0.02 s"},
		check{"policy", "last proxy", "ms", last, times(1, 20), "+ 20 ms"})
}

// sotwChecks compare state of the world with delta.
func sotwChecks() []check {
	var out []check
	for _, phase := range []string{"connect", "endpoint", "route", "churn"} {
		out = append(out, check{phase, "server CPU", "s", cpu, times(2, 0), "2 × delta"})
	}
	return out
}

// report is the tables of all comparisons in Markdown, and the number of targets missed.
func report(all []comparison) (string, int) {
	var b strings.Builder
	missed := 0
	for _, c := range all {
		base, checks := "floor", deltaChecks(c.Policies > 0)
		if !c.Delta {
			base, checks = "delta", sotwChecks()
		}
		fmt.Fprintf(&b, "**%s**\n\n| phase | measure | ashored | %s | ratio | at most | |\n| --- | --- | --: | --: | --: | --- | --- |\n", c.title(), base)
		for _, k := range checks {
			row, ok := k.row(median(c.Ours, k.phase), median(c.Base, k.phase))
			if !ok {
				missed++
			}
			b.WriteString(row)
		}
		b.WriteString(remarks(c))
		b.WriteString("\n")
	}
	return b.String(), missed
}

// row is one line of the table, and whether the target is reached.
func (k check) row(ours, base fleet.Figures) (string, bool) {
	v, of := k.value(ours), k.value(base)
	ok := v <= k.limit(of) && ours.Missing <= base.Missing
	verdict := "reached"
	if !ok {
		verdict = "**missed**"
	}
	number := func(v float64) string {
		if k.unit == "s" {
			return fmt.Sprintf("%.3f s", v)
		}
		return fmt.Sprintf("%.0f %s", v, k.unit)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %.2f | %s | %s |\n", k.phase, k.what, number(v), number(of), v/of, k.text,
		verdict), ok
}

// remarks are what must not be overlooked in a result.
func remarks(c comparison) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nReceived while connecting: %.0f MB from ashored, %.0f MB from the other side.\n",
		median(c.Ours, "connect").RecvMB, median(c.Base, "connect").RecvMB)
	for _, side := range []struct {
		name string
		r    fleet.Result
	}{{"ashored", c.Ours}, {"the other side", c.Base}} {
		missing := 0
		for _, f := range side.r.Phases {
			missing += f.Missing
		}
		if missing > 0 || side.r.LostStreams > 0 {
			fmt.Fprintf(&b, "\nWith %s %d proxies did not converge in time and %d streams were lost (%s).\n", side.name,
				missing, side.r.LostStreams, side.r.LastError)
		}
	}
	return b.String()
}

// median returns the figures of a phase: the median over its rounds, and the sum of missing
// proxies.
func median(r fleet.Result, phase string) fleet.Figures {
	var rounds []fleet.Figures
	out := fleet.Figures{Phase: phase}
	for _, f := range r.Phases {
		if f.Phase == phase {
			rounds = append(rounds, f)
			out.Missing += f.Missing
		}
	}
	if len(rounds) == 0 {
		return out
	}
	middle := func(value func(fleet.Figures) float64) float64 {
		var v []float64
		for _, f := range rounds {
			v = append(v, value(f))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	out.Proxies = rounds[0].Proxies
	out.ServerCPU, out.MaxMs, out.PeakMB = middle(cpu), middle(last), middle(peak)
	out.P50ms = middle(func(f fleet.Figures) float64 { return f.P50ms })
	out.RSSMB = middle(func(f fleet.Figures) float64 { return f.RSSMB })
	out.RecvMB = middle(func(f fleet.Figures) float64 { return f.RecvMB })
	return out
}

// machine says where the figures are from.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, the fleet on the same machine", runtime.NumCPU(), model, runtime.Version())
}

// marks are the lines between which a table of results stands in a file.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": begin -->", "<!-- " + name + ": end -->"
}

// writeTable replaces what stands between the marks of that name in the file path.
func writeTable(path, mark, command, machine, text string) error {
	beginMark, endMark := marks(mark)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	head, rest, began := strings.Cut(string(b), beginMark)
	_, foot, ended := strings.Cut(rest, endMark)
	if !began || !ended {
		return fmt.Errorf("write the results: %s lacks the lines %q and %q that hold them", path, beginMark, endMark)
	}
	body := fmt.Sprintf("%s%s\n\n`%s` on %s:\n\n%s%s%s", head, beginMark, command, machine, text, endMark, foot)
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
