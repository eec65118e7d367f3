package telemetry

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const mesh = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web-vm, namespace: shop}
spec:
  metadata: {labels: {app: web, version: v1}}
  template: {serviceAccount: web}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: client, namespace: shop}
spec:
  metadata: {labels: {app: client}}
  template: {serviceAccount: client}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 8080, name: http, protocol: HTTP}
  - {number: 9000, name: tcp, protocol: TCP}
  workloadSelector: {labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: empty, namespace: shop}
spec:
  hosts: [empty.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}
  - {port: {number: 9000, name: tcp, protocol: TCP}, defaultEndpoint: "0.0.0.0:19000"}
  egress:
  - hosts: ["~/*"]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{to: [{operation: {paths: [/secret], ports: ["8080"]}}]}]
`

// labels are labels of a metric that a test names.
type labels map[string]string

// sum returns the sum of the series of a proxy's metric that have all labels.
func sum(p *harness.Proxy, metric string, want labels) (float64, string, error) {
	resp, err := http.Get("http://" + p.IP + ":15020/stats/prometheus")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return 0, "", err
	}
	var total float64
	for _, m := range families[metric].GetMetric() {
		have := labels{}
		for _, l := range m.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		ok := true
		for k, v := range want {
			ok = ok && have[k] == v
		}
		if ok {
			total += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total, families[metric].String(), nil
}

// wants waits until a metric of a proxy has a value.
func wants(t *testing.T, p *harness.Proxy, metric string, least float64, want labels) {
	t.Helper()
	harness.Eventually(t, metric, func() error {
		got, all, err := sum(p, metric, want)
		if err == nil && got < least {
			err = fmt.Errorf("%v with %v, want %v of %s", got, want, least, all)
		}
		return err
	})
}

// Client and server count the same requests and connections, and both know who called whom.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"mesh.yaml": mesh}, harness.Secure(""))
	ip := m.IP()
	harness.NewBackend(t, "web", ip+":18080")
	harness.TCPEcho(t, "web", ip+":19000")
	server := m.Join(harness.Workload{Name: "web-1", Group: "shop/web-vm", IP: ip})
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client"})
	calls := client.Client(8080)
	calls.Want(t, "web answers", harness.Request{Host: "web.test"}, harness.Status(http.StatusOK))
	calls.Want(t, "it is refused", harness.Request{Host: "web.test", Path: "/secret"}, harness.Status(http.StatusForbidden))
	calls.Want(t, "there is none", harness.Request{Host: "empty.test"}, harness.Status(http.StatusServiceUnavailable))
	talk(t, client.IP+":9000")

	from := labels{"source_workload": "client", "source_workload_namespace": "shop", "source_canonical_service": "client",
		"source_canonical_revision": "latest"}
	to := labels{"destination_workload": "web-vm", "destination_workload_namespace": "shop", "destination_app": "web",
		"destination_version": "v1", "destination_service": "web.test", "destination_service_name": "web.test",
		"destination_service_namespace": "shop", "source_principal": "spiffe://cluster.local/ns/shop/sa/client",
		"destination_principal": "spiffe://cluster.local/ns/shop/sa/web"}
	with := func(more ...labels) labels {
		out := labels{}
		for _, one := range more {
			for k, v := range one {
				out[k] = v
			}
		}
		return out
	}
	ok := labels{"request_protocol": "http", "response_code": "200", "response_flags": "-"}
	source, destination := labels{"reporter": "source", "connection_security_policy": "unknown"},
		labels{"reporter": "destination", "connection_security_policy": "mutual_tls"}
	for _, metric := range []string{"istio_requests_total", "istio_request_duration_milliseconds"} {
		wants(t, client, metric, 1, with(from, to, source, ok))
		wants(t, server, metric, 1, with(to, destination, ok))
	}
	wants(t, server, "istio_request_bytes", 1, with(to, destination, ok))
	wants(t, server, "istio_response_bytes", 1, with(to, destination, ok))
	wants(t, client, "istio_requests_total", 1, with(from, to, source, labels{"response_code": "403"}))
	wants(t, server, "istio_requests_total", 1, with(destination, labels{"response_code": "403"}))
	wants(t, client, "istio_requests_total", 1, with(from, labels{"destination_service": "empty.test",
		"destination_workload": "unknown", "response_code": "503", "response_flags": "UH"}))
	for _, metric := range []string{"istio_tcp_connections_opened_total", "istio_tcp_connections_closed_total",
		"istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total"} {
		wants(t, client, metric, 1, with(from, to, source, labels{"request_protocol": "tcp"}))
		wants(t, server, metric, 1, with(to, destination, labels{"request_protocol": "tcp"}))
	}
}

// talk opens a connection, sends a line, and ends it after the answer.
func talk(t *testing.T, address string) {
	t.Helper()
	harness.Eventually(t, "TCP", func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		if _, err := in.ReadString('\n'); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return err
		}
		_, err = in.ReadString('\n')
		return err
	})
}
