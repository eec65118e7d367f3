package metrics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func rewritten(t *testing.T, in string) string {
	t.Helper()
	own := Workload{Name: "client", Namespace: "shop", Service: "client-app", Revision: "v2",
		Principal: "spiffe://cluster.local/ns/shop/sa/client"}
	var out strings.Builder
	if err := Rewrite(&out, strings.NewReader(in), own); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The labels of both sides, of the service and of the request are Istio's, in Istio's order.
func TestRewrite(t *testing.T) {
	t.Parallel()
	const services = `services="[{\"host\":\"web.shop.svc.cluster.local\",\"name\":\"web\",\"namespace\":\"shop\"}]"`
	const client = `source_workload="client",source_canonical_service="client-app",source_canonical_revision="v2",` +
		`source_workload_namespace="shop",source_principal="spiffe://cluster.local/ns/shop/sa/client",` +
		`source_app="client-app",source_version="v2",source_cluster="unknown"`
	const web = `destination_service="web.shop.svc.cluster.local",destination_service_name="web",` +
		`destination_service_namespace="shop"`
	const nobody = `workload="unknown",X_canonical_service="unknown",X_canonical_revision="unknown",` +
		`X_workload_namespace="unknown",X_principal="unknown",X_app="unknown",X_version="unknown",X_cluster="unknown"`
	unknown := func(side string) string { return side + "_" + strings.ReplaceAll(nobody, "X", side) }
	for name, tc := range map[string]struct{ in, want string }{
		"other metrics stay": {"# TYPE envoy_cluster_x counter\nenvoy_cluster_x{a=\"b\"} 1\n\nup 1\n",
			"# TYPE envoy_cluster_x counter\nenvoy_cluster_x{a=\"b\"} 1\n\nup 1\n"},
		"client": {"# TYPE envoy_istio_requests_total counter\n" +
			`envoy_istio_requests_total{reporter="source",` + services + `,` +
			`peer_principal="spiffe://cluster.local/ns/shop/sa/web",peer_workload="web-vm;shop;web;;c1",` +
			`request_protocol="http",response_code="200",grpc_response_status="",response_flags="-"} 3`,
			"# TYPE istio_requests_total counter\n" +
				`istio_requests_total{reporter="source",` + client + `,destination_workload="web-vm",` +
				`destination_canonical_service="web",destination_canonical_revision="latest",` +
				`destination_workload_namespace="shop",destination_principal="spiffe://cluster.local/ns/shop/sa/web",` +
				`destination_app="web",destination_version="latest",destination_cluster="c1",` + web + `,` +
				`request_protocol="http",response_code="200",grpc_response_status="",response_flags="-",` +
				`connection_security_policy="unknown"} 3` + "\n"},
		"server, foreign certificate": {`envoy_istio_tcp_sent_bytes_total{reporter="destination",` + services +
			`,peer_principal="spiffe://other/ns/bank/sa/teller",request_protocol="tcp",response_flags="-"} 7`,
			`istio_tcp_sent_bytes_total{reporter="destination",` +
				strings.NewReplacer(`source_workload_namespace="unknown"`, `source_workload_namespace="bank"`,
					`source_principal="unknown"`, `source_principal="spiffe://other/ns/bank/sa/teller"`).
					Replace(unknown("source")) + `,` + strings.ReplaceAll(client, "source_", "destination_") + `,` + web +
				`,request_protocol="tcp",response_flags="-",connection_security_policy="mutual_tls"} 7` + "\n"},
		"nothing is known, no mutual TLS": {`envoy_istio_requests_total{reporter="destination",services="",peer_principal="",` +
			`request_protocol="http",response_code="404",response_flags="NR"} 1`,
			`istio_requests_total{reporter="destination",` + unknown("source") + `,` + strings.ReplaceAll(
				strings.ReplaceAll(client, "spiffe://cluster.local/ns/shop/sa/client", "unknown"), "source_", "destination_") +
				`,destination_service="unknown",destination_service_name="unknown",destination_service_namespace="unknown",` +
				`request_protocol="http",response_code="404",response_flags="NR",connection_security_policy="none"} 1` + "\n"},
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

func FuzzRewrite(f *testing.F) {
	f.Add(`envoy_istio_requests_total{reporter="source",services="[{]",le="1"} 3`)
	f.Add(`envoy_istio_x{a="\`)
	f.Fuzz(func(t *testing.T, in string) {
		var out strings.Builder
		_ = Rewrite(&out, strings.NewReader(in), Workload{}) // any bytes: an error or not, never a panic
	})
}
