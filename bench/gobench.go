package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// buildBenchmarks are Go benchmarks with a size of the mesh behind the slash, and what one run
// does.
func buildBenchmarks() []struct{ name, what string } {
	return []struct{ name, what string }{
		{"BenchmarkBuildEndpoint", "one changed endpoint"},
		{"BenchmarkBuildRoute", "one changed route"},
	}
}

// measured is one line of a Go benchmark.
type measured struct {
	nanoseconds, cpu, bytes, allocs float64 // cpu: nanoseconds of all cores; zero: not told
}

// processor is the CPU time of one run: what was told, or the time that passed.
func (m measured) processor() float64 {
	if m.cpu > 0 {
		return m.cpu
	}
	return m.nanoseconds
}

// goBench runs the Go benchmarks of building a context and returns their table, and the number of
// targets missed.
func goBench(ctx context.Context) (string, int, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkBuild", "-benchmem", "-count", "6",
		"-benchtime", "200ms", "./push")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", 0, fmt.Errorf("go test -bench ./push, from the module's root: %w\n%s", err, out)
	}
	text, missed := buildTable(parseBench(string(out)))
	return text, missed, nil
}

// parseBench reads the output of go test -bench -benchmem; of several runs of one benchmark the
// fastest counts, for what disturbs a run only makes it slower.
func parseBench(out string) map[string]measured {
	all := map[string]measured{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // name, runs, value, unit, value, unit, …
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // "-2": GOMAXPROCS
			name = name[:i]
		}
		m := readUnits(f[2:])
		if old, ok := all[name]; !ok || m.processor() < old.processor() {
			all[name] = m
		}
	}
	return all
}

func readUnits(f []string) measured {
	var m measured
	for i := 0; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			continue // not a figure
		}
		switch f[i+1] {
		case "ns/op":
			m.nanoseconds = v
		case "cpu-ns/op":
			m.cpu = v
		case "B/op":
			m.bytes = v
		case "allocs/op":
			m.allocs = v
		}
	}
	return m
}

// buildTable compares meshes of 1,000 and 10,000 services.
func buildTable(all map[string]measured) (string, int) {
	var b strings.Builder
	missed := 0
	b.WriteString("**Building a context after a change, the fastest of six runs**\n\n| change | 1,000 services | 10,000 services | ratio | at most | allocations at 10,000 | |\n| --- | --: | --: | --: | --- | --- | --- |\n")
	for _, bench := range buildBenchmarks() {
		small, large := all[bench.name+"/1000"], all[bench.name+"/10000"]
		verdict := "reached"
		if small.nanoseconds == 0 || large.nanoseconds > 2*small.nanoseconds {
			verdict = "**missed**"
			missed++
		}
		fmt.Fprintf(&b, "| %s | %.1f µs | %.1f µs | %.2f | 2 × | %.0f, %.1f KB | %s |\n", bench.what,
			small.nanoseconds/1e3, large.nanoseconds/1e3,
			large.nanoseconds/small.nanoseconds, large.allocs, large.bytes/1e3, verdict)
	}
	b.WriteString("\n")
	return b.String(), missed
}
