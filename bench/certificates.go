package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// issuing are the pairs of Go benchmarks of package ca that are compared: what is measured, and
// what it cannot do without.
func issuing() []struct {
	name, what, base, of string
	least                float64 // of base's rate; zero: not judged
} {
	const handler, bench = "a renewal, all of CreateCertificate", "BenchmarkCreateCertificate/"
	return []struct {
		name, what, base, of string
		least                float64
	}{
		{"BenchmarkIssue", "reading, checking and signing a request", "BenchmarkSignAlone",
			"crypto/x509: parsing, verifying, signing", 0.8},
		{bench + "handler", handler, bench + "alone,_client_verified",
			"parsing, verifying the request and the client's chain, signing", 0.8},
		{bench + "handler", handler, bench + "alone", "the same without the client's chain", 0},
	}
}

// certificates runs the Go benchmarks of issuing.
func certificates(ctx context.Context) (section, error) {
	say("\nissuing certificates")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench",
		"^(BenchmarkIssue|BenchmarkSignAlone|BenchmarkCreateCertificate)$", "-benchtime", "1s", "-count", "6", "./ca")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return section{}, fmt.Errorf("go test -bench ./ca, from the module's root: %w\n%s", err, out)
	}
	text, missed := issuingTable(parseBench(string(out)), runtime.NumCPU())
	return section{text: text, missed: missed}, nil
}

// issuingTable compares the pairs; a rate is that of all cores. CPU time counts where a benchmark
// tells it.
func issuingTable(all map[string]measured, cores int) (string, int) {
	var b strings.Builder
	missed := 0
	b.WriteString("**Issuing certificates, the fastest of six runs, P-256**\n\n| what | CPU | a second on all cores | beside | CPU | rate of that | at least | |\n| --- | --: | --: | --- | --: | --: | --- | --- |\n")
	for _, p := range issuing() {
		ours, base := all[p.name].processor(), all[p.base].processor()
		least, verdict := "", ""
		if p.least > 0 {
			least, verdict = fmt.Sprintf("%.0f %%", 100*p.least), "reached"
			if ours == 0 || base < p.least*ours {
				verdict = "**missed**"
				missed++
			}
		}
		fmt.Fprintf(&b, "| %s | %.0f µs | %.0f | %s | %.0f µs | %.0f %% | %s | %s |\n", p.what, ours/1e3,
			float64(cores)*1e9/ours, p.of, base/1e3, 100*base/ours, least, verdict)
	}
	b.WriteString("\n")
	return b.String(), missed
}
