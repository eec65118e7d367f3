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

func TestRow(t *testing.T) {
	t.Parallel()
	k := check{"connect", "server CPU", "s", cpu, times(2, 0), "2 ×"}
	for _, tc := range []struct {
		name       string
		ours, base fleet.Figures
		want       string
		ok         bool
	}{
		{"reached", fleet.Figures{ServerCPU: 0.6}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 0.600 s | 0.400 s | 1.50 | 2 × | reached |\n", true},
		{"missed", fleet.Figures{ServerCPU: 1}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 1.000 s | 0.400 s | 2.50 | 2 × | **missed** |\n", false},
		// A server that leaves proxies out is not fast.
		{"proxies missing", fleet.Figures{ServerCPU: 0.1, Missing: 1}, fleet.Figures{ServerCPU: 0.4}, "| connect | server CPU | 0.100 s | 0.400 s | 0.25 | 2 × | **missed** |\n", false},
	} {
		if got, ok := k.row(tc.ours, tc.base); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

// One slow round of five decides nothing; a missing proxy of any round is never lost.
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
	text, missed := report([]comparison{{setup{Shape: shape, Proxies: 5, Delta: true}, phases(1), phases(1)},
		{setup{Shape: shape, Proxies: 5}, bad, phases(1)}})
	if missed != 4 {
		t.Errorf("%d targets missed, want the 4 of state of the world", missed)
	}
	for _, want := range []string{"**10 services × 4 endpoints, 5 proxies, delta, unscoped**",
		"| phase | measure | ashored | delta |", "4 streams were lost (EOF)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The floor with TLS is judged as the one without; policies are rows of their own.
func TestReportOfPolicies(t *testing.T) {
	t.Parallel()
	r := fleet.Result{Phases: []fleet.Figures{{Phase: "policy", ServerCPU: 0.01, MaxMs: 12}}}
	shape := fleet.Shape{Services: 10, Endpoints: 4, Namespaces: 2, Policies: 200}
	text, missed := report([]comparison{{setup{Shape: shape, Proxies: 5, Delta: true, TLS: true}, r, r}})
	for _, want := range []string{"delta, unscoped, mutual TLS, strict, 200 policies**",
		"| policy | last proxy | 12 ms | 12 ms | 1.00 | + 20 ms | reached |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if missed != 0 {
		t.Errorf("%d targets missed", missed)
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
func TestChoose(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args                 string
		plain, secure, joins int
		build, certs, agents bool
	}{
		{"", 2, 0, 0, true, false, false},
		{"-proxies 50 -sotw -build=false", 2, 0, 0, false, false, false},
		{"-tls", 0, 3, 0, false, false, false},
		{"-tls -policies 10 -proxies 50", 0, 1, 0, false, false, false},
		{"-joins 50 -agent", 0, 0, 50, false, false, true},
		{"-certificates", 0, 0, 0, false, true, false},
		{"-all", 5, 3, 1000, true, true, true},
	} {
		o, err := parseOptions(strings.Fields(tc.args))
		if err != nil {
			t.Fatal(err)
		}
		if len(o.plain) != tc.plain || len(o.secure) != tc.secure || o.joins != tc.joins || o.build != tc.build ||
			o.certificates != tc.certs || o.agents != tc.agents {
			t.Errorf("%q: %d and %d fleets, %d joins, build %v, certificates %v, agents %v", tc.args, len(o.plain),
				len(o.secure), o.joins, o.build, o.certificates, o.agents)
		}
	}
}

// Rates are judged by CPU time where it is told: what others do on the machine at that time does
// not count.
func TestIssuingTable(t *testing.T) {
	t.Parallel()
	text, missed := issuingTable(parseBench(`BenchmarkIssue-2 100 100000 ns/op
BenchmarkSignAlone-2 100 85000 ns/op
BenchmarkCreateCertificate/alone-2 100 1 ns/op 100000 cpu-ns/op
BenchmarkCreateCertificate/alone,_client_verified-2 100 1 ns/op 150000 cpu-ns/op
BenchmarkCreateCertificate/handler-2 100 900000 ns/op 200000 cpu-ns/op
BenchmarkCreateCertificate/handler-2 100 1 ns/op 300000 cpu-ns/op
`), 2)
	for _, want := range []string{"| 100 µs | 20000 | crypto/x509: parsing, verifying, signing | 85 µs | 85 % | 80 % | reached |", "| 200 µs | 10000 |", "| 150 µs | 75 % | 80 % | **missed** |", "| 100 µs | 50 % |  |  |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if missed != 1 {
		t.Errorf("%d targets missed, want 1", missed)
	}
}

func TestBuildTable(t *testing.T) {
	t.Parallel()
	text, missed := buildTable(parseBench(`goos: linux
BenchmarkBuildEndpoint/1000-2         	   10000	     2000 ns/op	    4482 B/op	      47 allocs/op
BenchmarkBuildEndpoint/1000-2         	   10000	     1000 ns/op	    4482 B/op	      47 allocs/op
BenchmarkBuildEndpoint/10000-2         	    1470	     1900 ns/op	    5188 B/op	      55 allocs/op
BenchmarkBuildRoute/1000-2            	    9004	     1000 ns/op	    3445 B/op	      45 allocs/op
BenchmarkBuildRoute/10000-2           	   10000	     2100 ns/op	    4204 B/op	      53 allocs/op
PASS
`))
	for _, want := range []string{"| one changed endpoint | 1.0 µs | 1.9 µs | 1.90 | 2 × | 55, 5.2 KB | reached |",
		"| one changed route | 1.0 µs | 2.1 µs | 2.10 | 2 × | 53, 4.2 KB | **missed** |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	if missed != 1 {
		t.Errorf("%d targets missed, want 1", missed)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"frob"}, {"run"}, {"gen"}, {"floor"}, {"-proxies", "many"}, {"-proxies", "0"},
		{"-joins", "-1"}, {envoyFlag}, {"gen", "x"}} {
		if err := dispatch(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%v: error %v, want one of usage", args, err)
		}
	}
}
