package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRow(t *testing.T) {
	t.Parallel()
	k := check{"connect", "server CPU", "s", cpu, times(2, 0), "2 ×"}
	for _, tc := range []struct {
		name       string
		ours, base fleet.Figures
		want       string
	}{
		{"reached", fleet.Figures{ServerCPU: 0.6}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 0.600 s | 0.400 s | 1.50 | 2 × | reached |\n"},
		{"missed", fleet.Figures{ServerCPU: 1}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 1.000 s | 0.400 s | 2.50 | 2 × | **missed** |\n"},
		// A server that does not serve all proxies is not fast.
		{"proxies missing", fleet.Figures{ServerCPU: 0.1, Missing: 1}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 0.100 s | 0.400 s | 0.25 | 2 × | **missed** |\n"},
	} {
		if got := k.row(tc.ours, tc.base); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// One slow round does not change the figures. A missing proxy of any round counts.
func TestMedian(t *testing.T) {
	t.Parallel()
	r := fleet.Result{Phases: []fleet.Figures{{Phase: "connect", ServerCPU: 9},
		{Phase: "route", ServerCPU: 1, MaxMs: 30}, {Phase: "route", ServerCPU: 50, MaxMs: 10,
			Missing: 2}, {Phase: "route", ServerCPU: 2, MaxMs: 20}}}
	want := fleet.Figures{Phase: "route", ServerCPU: 2, MaxMs: 20, Missing: 2}
	if d := cmp.Diff(want, median(r, "route")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	phases := func(cpu float64) fleet.Result {
		var r fleet.Result
		for _, p := range []string{"connect", "endpoint", "route", "churn"} {
			r.Phases = append(r.Phases, fleet.Figures{Phase: p, ServerCPU: cpu, MaxMs: 10, PeakMB: 100})
		}
		return r
	}
	shape := fleet.Shape{Services: 10, Endpoints: 4, Namespaces: 2}
	bad := phases(3)
	bad.LostStreams, bad.LastError = 4, "EOF"
	delta := comparison{setup{Shape: shape, Proxies: 5, Delta: true}, phases(1), phases(1)}
	sotw := comparison{setup{Shape: shape, Proxies: 5}, bad, phases(1)}
	text := delta.report() + sotw.report()
	if n := strings.Count(text, "**missed**"); n != 4 {
		t.Errorf("%d targets missed, want the 4 of state of the world", n)
	}
	for _, want := range []string{"**10 services × 4 endpoints, 5 proxies, delta, unscoped**",
		"| phase | measure | ashored | delta |", "4 streams were lost (EOF)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Policies have their own rows.
func TestReportOfPolicies(t *testing.T) {
	t.Parallel()
	r := fleet.Result{Phases: []fleet.Figures{{Phase: "policy", ServerCPU: 0.01, MaxMs: 12}}}
	shape := fleet.Shape{Services: 10, Endpoints: 4, Namespaces: 2, Policies: 200}
	text := comparison{setup{Shape: shape, Proxies: 5, Delta: true, TLS: true}, r, r}.report()
	for _, want := range []string{"delta, unscoped, mutual TLS, strict, 200 policies**",
		"| policy | last proxy | 12 ms | 12 ms | 1.00 | + 20 ms | reached |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestSetups(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct{ plain, secure int }{
		"":                              {2, 0},
		"-proxies 50 -sotw":             {2, 0},
		"-tls":                          {0, 3},
		"-tls -policies 10 -proxies 50": {0, 1},
		"-all":                          {5, 3},
	} {
		o, err := parseOptions(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		plain, secure := 0, 0
		for _, c := range o.setups() {
			if c.TLS {
				secure++
			} else {
				plain++
			}
		}
		if plain != want.plain || secure != want.secure {
			t.Errorf("%q: got %d plaintext and %d TLS setups, want %v", args, plain, secure, want)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"frob"}, {"run"}, {"gen"}, {"floor"}, {"-proxies", "many"}, {"-proxies", "0"},
		{"gen", "x"}} {
		if err := dispatch(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%v: error %v, want one of usage", args, err)
		}
	}
}
