package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// pair is two Go benchmarks: what is measured, and what it is compared with.
type pair struct {
	what, name, of, base string
	most                 float64 // of base's CPU time; zero: not judged
}

// building are about meshes of 10,000 and of 1,000 services.
func building(ctx context.Context) (string, error) {
	return goBench(ctx, "./push", "Building a context after a change, 10,000 services", []pair{
		{"one changed endpoint", "BenchmarkBuildEndpoint/10000", "1,000 services", "BenchmarkBuildEndpoint/1000", 2},
		{"one changed route", "BenchmarkBuildRoute/10000", "1,000 services", "BenchmarkBuildRoute/1000", 2},
	})
}

// issuing are about issuing a certificate, and what that cannot do without.
func issuing(ctx context.Context) (string, error) {
	const renewal, call = "a renewal, all of CreateCertificate", "BenchmarkCreateCertificate/"
	return goBench(ctx, "./ca", "Issuing certificates, P-256", []pair{
		{"reading, checking and signing a request", "BenchmarkIssue", "crypto/x509: parsing, verifying, signing",
			"BenchmarkSignAlone", 1.25},
		{renewal, call + "handler", "parsing, verifying the request and the client's chain, signing",
			call + "alone,_client_verified", 1.25},
		{renewal, call + "handler", "the same without the client's chain", call + "alone", 0},
	})
}

// goBench runs the benchmarks of a package from the module's root, and returns their table.
func goBench(ctx context.Context, folder, title string, pairs []pair) (string, error) {
	say("\n%s", strings.ToLower(title))
	var names []string
	for _, p := range pairs {
		for _, name := range []string{p.name, p.base} {
			name, _, _ = strings.Cut(name, "/")
			names = append(names, name)
		}
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^("+strings.Join(names, "|")+")$",
		"-count", "6", "-benchtime", "1s", folder)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go test -bench %s, from the module's root: %w\n%s", folder, err, out)
	}
	return pairTable(title, pairs, parseBench(string(out))), nil
}

func pairTable(title string, pairs []pair, cpu map[string]float64) string {
	t := newTable(title+", the fastest of six runs", "what", "CPU:", "compared with", "CPU:", "ratio:", "at most", "")
	for _, p := range pairs {
		ours, base, limit, verdict := cpu[p.name], cpu[p.base], "", ""
		if p.most > 0 {
			limit, verdict = fmt.Sprintf("%g ×", p.most), judge(ours > 0 && ours <= p.most*base)
		}
		t.row(p.what, fmt.Sprintf("%.1f µs", ours/1e3), p.of, fmt.Sprintf("%.1f µs", base/1e3),
			fmt.Sprintf("%.2f", ours/base), limit, verdict)
	}
	return t.String()
}

// parseBench reads the CPU nanoseconds of one run from the output of go test -bench: what the
// benchmark reports as cpu-ns/op, or else the time that passed. Of several runs the fastest counts,
// because what disturbs a run only makes it slower.
func parseBench(out string) map[string]float64 {
	line := regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op(?:.*\s([\d.]+) cpu-ns/op)?`)
	all := map[string]float64{}
	for _, m := range line.FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(cmp.Or(m[3], m[2]), 64)
		if old, known := all[m[1]]; err == nil && (!known || v < old) {
			all[m[1]] = v
		}
	}
	return all
}
