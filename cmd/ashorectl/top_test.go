package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exposition is the metrics of an agent after n rounds of requests, with a metric of another kind.
func exposition(n int) string {
	const labels = `destination_workload="api",destination_workload_namespace="shop",destination_service="api.example"`
	var b strings.Builder
	b.WriteString("# TYPE ashore_agent_up gauge\nashore_agent_up 1\n# TYPE istio_requests_total counter\n")
	counter := func(reporter, code string, n int) {
		fmt.Fprintf(&b, "istio_requests_total{reporter=%q,%s,response_code=%q,response_flags=\"-\"} %d\n", reporter, labels, code, n)
	}
	counter("destination", "200", 9000*n) // the source reports the same
	counter("source", "200", 30*n)
	counter("source", "503", 1000+6*n) // 1000 before the first scrape
	counter("source", "0", 4*n)
	fmt.Fprintf(&b, "istio_requests_total{reporter=\"destination\",destination_service=\"called.example\",response_code=\"200\"} %d\n", 5*n)
	b.WriteString("# TYPE istio_request_duration_milliseconds histogram\n")
	for _, bucket := range []struct {
		le string
		n  int
	}{{"10", 20}, {"20", 40}, {"+Inf", 40}} {
		fmt.Fprintf(&b, "istio_request_duration_milliseconds_bucket{reporter=\"source\",%s,le=%q} %d\n", labels, bucket.le, bucket.n*n)
	}
	fmt.Fprintf(&b, "istio_request_duration_milliseconds_sum{reporter=\"source\",%s} 1\n", labels)
	fmt.Fprintf(&b, "istio_request_duration_milliseconds_count{reporter=\"source\",%s} %d\n", labels, 40*n)
	return b.String()
}

// Two scrapes of an agent make a table. The shares and latencies do not depend on the time between.
func TestTopOfProxy(t *testing.T) {
	t.Parallel()
	var scrapes atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprint(w, exposition(int(scrapes.Add(1))))
	}))
	defer srv.Close()
	code, out, errOut := result(t, "top", "services", "--window", "10ms", "--proxy", strings.TrimPrefix(srv.URL, "http://"))
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 4 {
		t.Fatalf("exit code %d, %s, got\n%s", code, errOut, out)
	}
	for i, want := range [][]string{{"NAME", "REQUESTS/S", "ERRORS", "P50", "P99"},
		{"api.example", "*", "25.00%", "10.0ms", "19.8ms"}, {"called.example", "*", "0.00%", "-", "-"}} {
		got := strings.Fields(lines[i])
		if i > 0 {
			got[1] = "*"
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("row %d (-want +got):\n%s", i, d)
		}
	}
	if code, _, errOut := result(t, "top", "services", "--proxy", "127.0.0.1:1"); code != exitFailed || !strings.Contains(errOut, "scrape the agent") {
		t.Errorf("without an agent: exit code %d, %s", code, errOut)
	}
}

// Prometheus is asked for the rates of a window; its errors are shown.
func TestTopOfPrometheus(t *testing.T) {
	t.Parallel()
	const vector = `{"status":"success","data":{"resultType":"vector","result":[%s]}}`
	const sample = `{"metric":{"reporter":"destination","destination_workload_namespace":"shop","destination_workload":"api"%s},"value":[1700000000.1,"%s"]}`
	answers := map[string]string{
		"sum by (reporter,response_code,grpc_response_status,le,destination_workload_namespace,destination_workload) (rate(istio_requests_total[60000ms]))": fmt.Sprintf(
			vector, fmt.Sprintf(sample, `,"response_code":"200"`, "3")+","+fmt.Sprintf(sample, `,"response_code":"200","grpc_response_status":"14"`, "1")),
		"sum by (reporter,response_code,grpc_response_status,le,destination_workload_namespace,destination_workload) (rate(istio_request_duration_milliseconds_bucket[60000ms]))": fmt.Sprintf(
			vector, fmt.Sprintf(sample, `,"le":"5"`, "4")+","+fmt.Sprintf(sample, `,"le":"+Inf"`, "4")),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.FormValue("query")]
		if r.URL.Path != "/prom/api/v1/query" || !ok {
			w.WriteHeader(http.StatusBadRequest)
			answer = `{"status":"error","errorType":"bad_data","error":"unknown query ` + r.FormValue("query") + `"}`
		}
		fmt.Fprint(w, answer)
	}))
	defer srv.Close()
	for args, want := range map[string]string{
		"top workloads --window 1m":         "NAME      REQUESTS/S  ERRORS  P50    P99\nshop/api  4.00        25.00%  2.5ms  5.0ms\n",
		"top workloads --window 1m -o json": "[\n  {\n    \"name\": \"shop/api\",\n    \"requests\": 4,\n    \"errors\": 0.25,\n    \"p50\": 2.5,\n    \"p99\": 4.95\n  }\n]\n",
	} {
		for _, flag := range [][]string{{"--prometheus", srv.URL + "/prom/"}, {"--socket", serve(t, &fake{prometheus: srv.URL + "/prom"})}} {
			code, out, errOut := result(t, append(strings.Fields(args), flag...)...)
			if d := cmp.Diff(want, out); code != 0 || d != "" {
				t.Errorf("%s: exit code %d, %s (-want +got):\n%s", args, code, errOut, d)
			}
		}
	}
	for args, want := range map[string]string{
		"top --window 0s":                                "--window 0s: want more than 0s",
		"top --proxy a --prometheus b":                   "--proxy and --prometheus exclude each other",
		"top nodes":                                      "nodes: want services (svc) or workloads",
		"top --prometheus " + srv.URL + "/prom":          "destination_service) (rate(",
		"top svc --prometheus " + srv.URL + "/prom":      "destination_service) (rate(",
		"top services --prometheus " + srv.URL + "/prom": "ask Prometheus at " + srv.URL + "/prom/api/v1/query: unknown query sum by",
		"top services --prometheus " + srv.URL:           "unknown query",
		"top services --socket " + serve(t, &fake{}):     "no Prometheus is known: set metrics.prometheus",
	} {
		if code, out, errOut := result(t, strings.Fields(args)...); code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %s%s; want %s", args, code, out, errOut, want)
		}
	}
}

// Errors of Prometheus are shown without its password.
func TestTopErrors(t *testing.T) {
	t.Parallel()
	body := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "secret" {
			t.Errorf("asked by %s:%s", user, password)
		}
		fmt.Fprint(w, body)
	}))
	defer srv.Close()
	address := strings.TrimPrefix(srv.URL, "http://")
	for _, tc := range []struct{ name, base, body, want string }{
		{"an error", "http://ann:secret@" + address, `{"status":"error","error":"too many samples"}`,
			"ask Prometheus at http://ann:xxxxx@" + address + "/api/v1/query: too many samples"},
		{"other JSON", "http://ann:secret@" + address, `{}`,
			"ask Prometheus at http://ann:xxxxx@" + address + "/api/v1/query: HTTP status 200 OK, not an answer of its API\n"},
		{"no JSON", "http://ann:secret@" + address, `<html>`, "HTTP status 200 OK, not an answer of its API: invalid character"},
		{"no answer", "http://ann:secret@127.0.0.1:1", "", `ask Prometheus: Get "http://ann:***@127.0.0.1:1/`},
		{"no URL", "http://ann:secret@ x", "", "the URL of Prometheus is not valid"},
	} {
		body = tc.body
		code, _, errOut := result(t, "top", "services", "--prometheus", tc.base)
		if code == 0 || !strings.Contains(errOut, tc.want) || strings.Contains(errOut, "secret") || strings.Contains(errOut, "%!") {
			t.Errorf("%s: exit code %d, %s; want %s", tc.name, code, errOut, tc.want)
		}
	}
}
