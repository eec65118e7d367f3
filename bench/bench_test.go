package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// comparisonOf has the same figures in every phase.
func comparisonOf(c setup, ours, floor fleet.Figures) comparison {
	out := comparison{setup: c}
	for _, p := range []string{"connect", "endpoint", "route", "churn", "policy", "readiness", "rolling"} {
		ours.Phase, floor.Phase = p, p
		out.ours.Phases, out.floor.Phases = append(out.ours.Phases, ours), append(out.floor.Phases, floor)
	}
	return out
}

func TestReport(t *testing.T) {
	t.Parallel()
	shape := fleet.Shape{Services: 10, Endpoints: 4, Namespaces: 2}
	judged := shape
	judged.Policies = 200
	base := fleet.Figures{ServerCPU: 0.4, MaxMs: 10, PeakMB: 100}
	for name, tc := range map[string]struct {
		setup  setup
		ours   fleet.Figures
		want   string
		misses int
	}{
		"reached": {setup{Shape: shape, Proxies: 5}, fleet.Figures{ServerCPU: 0.6, MaxMs: 10},
			"| connect | server CPU | 0.600 s | 0.400 s | 1.50 | 2 × | reached |\n", 0},
		"missed": {setup{Shape: shape, Proxies: 5}, fleet.Figures{ServerCPU: 1},
			"| connect | server CPU | 1.000 s | 0.400 s | 2.50 | 2 × | **missed** |\n", 3},
		"a limit that is added to": {setup{Shape: shape, Proxies: 5}, fleet.Figures{MaxMs: 30},
			"| endpoint | last proxy | 30 ms | 10 ms | 3.00 | + 20 ms | reached |\n", 2},
		// A server that leaves proxies out is not fast.
		"proxies missing": {setup{Shape: shape, Proxies: 5}, fleet.Figures{ServerCPU: 0.1, Missing: 1},
			"With ashored 7 proxies did not converge", 8},
		"policies": {setup{Shape: judged, Proxies: 5, TLS: true}, fleet.Figures{MaxMs: 10},
			"| policy | last proxy | 10 ms | 10 ms | 1.00 | + 20 ms | reached |\n", 0},
		"Kubernetes": {setup{Shape: shape, Proxies: 5, Kubernetes: true}, fleet.Figures{MaxMs: 20.1},
			"| readiness | last proxy, 99 % | 20 ms | 10 ms | 2.01 | 20 ms | **missed** |\n", 2},
		"title": {setup{Shape: judged, Proxies: 5, TLS: true}, fleet.Figures{},
			"**10 services × 4 endpoints, 5 proxies, unscoped, mutual TLS, strict, 200 policies**\n", 0},
	} {
		text := comparisonOf(tc.setup, tc.ours, base).report()
		if n := strings.Count(text, missed); !strings.Contains(text, tc.want) || n != tc.misses {
			t.Errorf("%s: %d targets missed, want %d, and %q in\n%s", name, n, tc.misses, tc.want, text)
		}
	}
}

// One slow round of five decides nothing; a missing proxy of any round is never lost.
func TestMedian(t *testing.T) {
	t.Parallel()
	r := fleet.Result{Phases: []fleet.Figures{{Phase: "connect", ServerCPU: 9},
		{Phase: "route", ServerCPU: 1, MaxMs: 30}, {Phase: "route", ServerCPU: 50, MaxMs: 10,
			Missing: 2}, {Phase: "route", ServerCPU: 2, MaxMs: 20}}}
	if got, n := quantile(r, "route", 0.5, serverCPU), missing(r, "route"); got != 2 || n != 2 {
		t.Errorf("got %v and %d missing, want 2 and 2", got, n)
	}
}

func TestWriteTable(t *testing.T) {
	t.Parallel()
	begin, end := marks("joins")
	other := "<!-- results: begin -->\nkept\n<!-- results: end -->\n"
	path := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(path, []byte("head\n"+other+begin+"\nold\n"+end+"\nfoot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTable(path, "joins", "make bench", "a machine", "table\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("head\n"+other+begin+"\n\n`make bench` on a machine:\n\ntable\n"+end+"\nfoot\n",
		string(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := writeTable(path, "agent", "", "",
		""); err == nil || !strings.Contains(err.Error(), "<!-- agent: begin -->") {
		t.Errorf("error %v, want one that names the marks", err)
	}
}

// What is measured is what is named; the two kinds of fleets when nothing is, or all.
func TestParseFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args          string
		plain, secure int
		joins         uint
		cluster       bool
	}{
		{"", 2, 0, 0, false},
		{"-proxies 50", 1, 0, 0, false},
		{"-tls", 0, 3, 0, false},
		{"-tls -proxies 50", 0, 2, 0, false},
		{"-joins 50", 0, 0, 50, false},
		{"-kubernetes", 0, 0, 0, true},
		{"-all", 5, 3, 1000, true},
	} {
		b, err := parseFlags(strings.Fields(tc.args))
		if err != nil {
			t.Fatal(err)
		}
		if len(b.plain) != tc.plain || len(b.secure) != tc.secure || b.joins != tc.joins ||
			b.cluster != tc.cluster {
			t.Errorf("%q: %d and %d fleets, %d joins, a cluster: %t", tc.args, len(b.plain), len(b.secure), b.joins, b.cluster)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"frob"}, {"floor"}, {"-proxies", "many"}, {"-proxies", "0"}, {"-joins", "-1"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%v: error %v, want one of usage", args, err)
		}
	}
}
