package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ashore-mesh/ashore/internal/peername"
)

func rewritten(t *testing.T, in string) string {
	t.Helper()
	own := Workload{Name: peername.Name{Workload: "client", Service: "client-app", Revision: "v2"}, Namespace: "shop",
		Principal: "spiffe://cluster.local/ns/shop/sa/client"}
	var out strings.Builder
	if err := Rewrite(&out, strings.NewReader(in), own); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The labels of both sides, of the service and of the request are Istio's.
func TestRewrite(t *testing.T) {
	t.Parallel()
	const service = `service="web.shop.svc.cluster.local;web;shop"`
	const web = `destination_service="web.shop.svc.cluster.local",destination_service_name="web",` +
		`destination_service_namespace="shop"`
	const noService = `destination_service="unknown",destination_service_name="unknown",` +
		`destination_service_namespace="unknown"`
	const id = "spiffe://cluster.local/ns/shop/sa/"
	side := func(side, workload, service, revision, namespace, principal, cluster string) string {
		return strings.ReplaceAll(fmt.Sprintf(`S_workload=%q,S_canonical_service=%q,S_canonical_revision=%q,`+
			`S_workload_namespace=%q,S_principal=%q,S_app=%q,S_version=%q,S_cluster=%q,`,
			workload, service, revision, namespace, principal, service, revision, cluster), "S_", side+"_")
	}
	client := func(as, principal string) string {
		return side(as, "client", "client-app", "v2", "shop", principal, "unknown")
	}
	for name, tc := range map[string]struct{ in, want string }{
		"other metrics stay": {"# TYPE envoy_cluster_x counter\nenvoy_cluster_x{a=\"b\"} 1\n\nup 1\n",
			"# TYPE envoy_cluster_x counter\nenvoy_cluster_x{a=\"b\"} 1\n\nup 1\n"},
		"client": {"# TYPE envoy_istio_requests_total counter\n" +
			`envoy_istio_requests_total{reporter="source",` + service + `,peer_principal="` + id + `web",` +
			`peer_workload="web-vm;shop;web;;c1",` +
			`request_protocol="http",response_code="200",grpc_response_status="",response_flags="-"} 3` + "\n\n# end",
			"# TYPE istio_requests_total counter\n" + `istio_requests_total{reporter="source",` + client("source", id+"client") +
				side("destination", "web-vm", "web", "latest", "shop", id+"web", "c1") + web +
				`,connection_security_policy="unknown",grpc_response_status="",request_protocol="http",` +
				`response_code="200",response_flags="-"} 3` + "\n\n# end\n"},
		"server": {`envoy_istio_requests_total{reporter="destination",` + service + `,peer_principal="` + id + `batch",` +
			`peer_workload="batch.corp,w--batch.a--jobs.v--1--2e2.c--c1.peer.ashore"} 1`,
			`istio_requests_total{reporter="destination",` + side("source", "batch", "jobs", "1.2", "shop", id+"batch", "c1") +
				client("destination", id+"client") + web + `,connection_security_policy="mutual_tls"} 1` + "\n"},
		"server, another trust domain": {`envoy_istio_tcp_sent_bytes_total{reporter="destination",` + service +
			`,peer_principal="spiffe://other/ns/bank/sa/teller",peer_workload="w--web.a--web.v--v1.c--c1.peer.ashore"} 7`,
			`istio_tcp_sent_bytes_total{reporter="destination",` +
				side("source", "unknown", "unknown", "unknown", "bank", "spiffe://other/ns/bank/sa/teller", "unknown") +
				client("destination", id+"client") + web + `,connection_security_policy="mutual_tls"} 7` + "\n"},
		"nothing is known, no mutual TLS": {`envoy_istio_requests_total{reporter="destination",service="",peer_principal=""} 1`,
			`istio_requests_total{reporter="destination",` +
				side("source", "unknown", "unknown", "unknown", "unknown", "unknown", "unknown") + client("destination", "unknown") +
				noService + `,connection_security_policy="none"} 1` + "\n"},
		"passthrough": {`envoy_istio_tcp_sent_bytes_total{reporter="source",service=";PassthroughCluster;"} 1`,
			`istio_tcp_sent_bytes_total{reporter="source",` + client("source", "unknown") +
				side("destination", "unknown", "unknown", "unknown", "unknown", "unknown", "unknown") +
				strings.Replace(noService, `name="unknown"`, `name="PassthroughCluster"`, 1) +
				`,connection_security_policy="unknown"} 1` + "\n"},
		"messages": {"# TYPE envoy_cluster_grpc_request_message_count counter\n" +
			`envoy_cluster_grpc_request_message_count{cluster_name="outbound|80||web.shop.svc.cluster.local"} 1` + "\n" +
			`envoy_cluster_grpc_request_message_count{cluster_name="outbound|80|v1|web.shop.svc.cluster.local"} 2` + "\n" +
			"# TYPE envoy_cluster_grpc_response_message_count counter\n" +
			`envoy_cluster_grpc_response_message_count{cluster_name="inbound|80||"} 1`,
			"# TYPE istio_request_messages_total counter\n" + `istio_request_messages_total{reporter="source",` +
				client("source", "unknown") +
				side("destination", "unknown", "unknown", "unknown", "unknown", "unknown", "unknown") + web +
				`,connection_security_policy="unknown",request_protocol="grpc"} 3` + "\n" +
				"# TYPE istio_response_messages_total counter\n" + `istio_response_messages_total{reporter="destination",` +
				side("source", "unknown", "unknown", "unknown", "unknown", "unknown", "unknown") + client("destination", "unknown") +
				noService + `,connection_security_policy="unknown",request_protocol="grpc"} 1` + "\n"},
		"messages, other host": {`envoy_cluster_grpc_request_message_count{cluster_name="outbound|80||web.test"} 1`,
			`istio_request_messages_total{reporter="source",` + client("source", "unknown") +
				side("destination", "unknown", "unknown", "unknown", "unknown", "unknown", "unknown") +
				`destination_service="web.test",destination_service_name="web.test",destination_service_namespace="unknown",` +
				`connection_security_policy="unknown",request_protocol="grpc"} 1` + "\n"},
		"labels removed, replaced and added": {`envoy_istio_requests_total{reporter="source",response_code="200",` +
			`destination_version="x",path="/a",removed_tags="` + strings.Join(allBut("reporter", "destination_version"), ",") + `"} 1`,
			`istio_requests_total{reporter="source",destination_version="x",path="/a"} 1` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rewritten(t, tc.in)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// allBut returns the names of labels other than some.
func allBut(kept ...string) []string {
	var out []string
	for _, side := range []string{"source", "destination"} {
		for _, l := range (Workload{}).labels(side + "_") {
			out = append(out, l.name)
		}
	}
	for _, l := range serviceLabels("") {
		out = append(out, l.name)
	}
	out = append(out, "connection_security_policy", "response_code")
	return slices.DeleteFunc(out, func(name string) bool { return slices.Contains(kept, name) })
}

// Series that differ in removed labels alone are added up: counters, and histograms line by line.
func TestRewriteSums(t *testing.T) {
	t.Parallel()
	removed := `removed_tags="` + strings.Join(allBut(), ",") + `"`
	var in strings.Builder
	for _, kind := range []string{"requests_total counter", "request_bytes histogram"} {
		metric, _, _ := strings.Cut(kind, " ")
		fmt.Fprintf(&in, "# TYPE envoy_istio_%s\n", kind)
		for i, code := range []string{"200", "404"} {
			labels := fmt.Sprintf(`reporter="source",response_code=%q,`, code) + removed
			if metric == "requests_total" {
				fmt.Fprintf(&in, "envoy_istio_%s{%s} %d\n", metric, labels, i+1)
				continue
			}
			fmt.Fprintf(&in, "envoy_istio_%[1]s_bucket{%[2]s,le=\"0.5\"} %[3]d\nenvoy_istio_%[1]s_bucket{%[2]s,le=\"+Inf\"} %[4]d\n"+
				"envoy_istio_%[1]s_sum{%[2]s} 1.25\nenvoy_istio_%[1]s_count{%[2]s} %[4]d\n", metric, labels, i, i+5)
		}
	}
	const want = `# TYPE istio_requests_total counter
istio_requests_total{reporter="source"} 3
# TYPE istio_request_bytes histogram
istio_request_bytes_bucket{reporter="source",le="0.5"} 1
istio_request_bytes_bucket{reporter="source",le="+Inf"} 11
istio_request_bytes_sum{reporter="source"} 2.5
istio_request_bytes_count{reporter="source"} 11
`
	if d := cmp.Diff(want, rewritten(t, in.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The steps of a histogram keep their bounds, and values that need escapes stay what they are.
func TestRewriteHistogram(t *testing.T) {
	t.Parallel()
	got := rewritten(t, "# TYPE envoy_istio_request_bytes histogram\n"+
		`envoy_istio_request_bytes_bucket{reporter="source",response_flags="a\"b\\",le="100"} 1`+"\n"+
		`envoy_istio_request_bytes_bucket{reporter="source",response_flags="a\"b\\",le="+Inf"} 2`+"\n"+
		`envoy_istio_request_bytes_sum{reporter="source",response_flags="a\"b\\"} 150`+"\n"+
		`envoy_istio_request_bytes_count{reporter="source",response_flags="a\"b\\"} 2`+"\n")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(got))
	if err != nil {
		t.Fatalf("%v in\n%s", err, got)
	}
	m := families["istio_request_bytes"].GetMetric()
	if len(m) != 1 || m[0].GetHistogram().GetSampleCount() != 2 || len(m[0].GetHistogram().GetBucket()) != 2 {
		t.Fatalf("got %v", families)
	}
	for _, l := range m[0].GetLabel() {
		if l.GetName() == "response_flags" && l.GetValue() != `a"b\` {
			t.Errorf("response_flags is %q", l.GetValue())
		}
	}
}

// A value that is no text would make Prometheus refuse all metrics of the machine.
func TestRewriteInvalidText(t *testing.T) {
	t.Parallel()
	got := rewritten(t, "envoy_istio_requests_total{host=\"a\xff\xc3\",removed_tags=\""+
		strings.Join(allBut(), ",")+",reporter\"} 1")
	if want := "istio_requests_total{host=\"a\uFFFD\"} 1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Prometheus reads the result, whatever the value of a label is: callers choose some of them.
func FuzzRewrite(f *testing.F) {
	f.Add(`envoy_istio_requests_total{reporter="source",service=";",le="1"} 3`)
	f.Add(`envoy_istio_x{a="\`)
	f.Add(`a,le=`)
	f.Add(`a"} 1`)
	f.Fuzz(func(t *testing.T, in string) {
		var out strings.Builder
		_ = Rewrite(&out, strings.NewReader(in), Workload{}) // any bytes: an error or not, never a panic

		value := strings.ToValidUTF8(in, "\uFFFD")
		label := `{request_host="` + escape.Replace(value) + `"`
		got := rewritten(t, "# TYPE envoy_istio_requests_total counter\nenvoy_istio_requests_total"+label+"} 1\n"+
			"# TYPE envoy_istio_request_bytes histogram\n"+
			"envoy_istio_request_bytes_bucket"+label+",le=\"+Inf\"} 1\n"+
			"envoy_istio_request_bytes_sum"+label+"} 1\nenvoy_istio_request_bytes_count"+label+"} 1\n")
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(got))
		if err != nil {
			t.Fatalf("%v in\n%s", err, got)
		}
		for _, name := range []string{"istio_requests_total", "istio_request_bytes"} {
			series := families[name].GetMetric()
			if len(series) != 1 || !slices.ContainsFunc(series[0].GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == "request_host" && l.GetValue() == value
			}) {
				t.Errorf("the label of %s is not %q in\n%s", name, value, got)
			}
		}
	})
}
