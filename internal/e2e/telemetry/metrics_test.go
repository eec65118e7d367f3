package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const mesh = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web-vm, namespace: shop}
spec:
  metadata: {labels: {app: web, version: "1.2"}}
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
  - {number: 7000, name: grpc, protocol: GRPC}
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
  - {port: {number: 7000, name: grpc, protocol: GRPC}, defaultEndpoint: "0.0.0.0:17000"}
  egress:
  - hosts: ["~/*"]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
  egress:
  - hosts: ["*/*"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  http:
  - match: [{uri: {prefix: /slow}, port: 8080}]
    timeout: 0.2s
    route: [{destination: {host: web.test}}]
  - route: [{destination: {host: web.test}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{to: [{operation: {paths: [/secret], ports: ["8080"]}}]}]
`

// labels are all labels of a series.
type labels map[string]string

// with returns the labels with others in their place.
func (l labels) with(others labels) labels {
	out := maps.Clone(l)
	maps.Copy(out, others)
	return out
}

// wants waits until a metric of a proxy has a series with exactly these labels.
func wants(t *testing.T, p *harness.Proxy, metric string, want labels) {
	t.Helper()
	harness.Eventually(t, metric, func() error {
		family, err := scrape(p, metric)
		if err != nil {
			return err
		}
		var all strings.Builder
		for _, m := range family.GetMetric() {
			have := labels{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			if maps.Equal(have, want) && m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()) > 0 {
				return nil
			}
			all.WriteString(cmp.Diff(want, have))
		}
		return fmt.Errorf("no series with %v (-want +got):\n%s", want, all.String())
	})
}

// scrape reads a metric of a proxy.
func scrape(p *harness.Proxy, metric string) (*dto.MetricFamily, error) {
	resp, err := http.Get("http://" + p.IP + ":15020/stats/prometheus")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	return families[metric], err
}

// side are the labels of one side of a connection.
func side(name, workload, service, version, account string) labels {
	return labels{name + "_workload": workload, name + "_canonical_service": service, name + "_app": service,
		name + "_canonical_revision": version, name + "_version": version, name + "_workload_namespace": "shop",
		name + "_principal": "spiffe://cluster.local/ns/shop/sa/" + account, name + "_cluster": "c1"}
}

func keys(l labels) []string { return slices.Collect(maps.Keys(l)) }

// unknown are labels that are not known.
func unknown(keys ...string) labels {
	out := labels{}
	for _, k := range keys {
		out[k] = "unknown"
	}
	return out
}

// Client and server count the same requests and connections, with Istio's labels: both know who
// called whom.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"mesh.yaml": mesh},
		harness.Secure("mesh: {defaultConfig: {proxyMetadata: {ISTIO_META_CLUSTER_ID: c1}}}"))
	ip := m.IP()
	harness.NewBackend(t, "web", ip+":18080")
	harness.TCPEcho(t, "web", ip+":19000")
	serveGRPC(t, ip+":17000")
	server := m.Join(harness.Workload{Name: "web-1", Group: "shop/web-vm", IP: ip})
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client"})

	who := side("source", "client", "client", "latest", "client").with(side("destination", "web-vm", "web", "1.2", "web")).
		with(labels{"destination_service": "web.test", "destination_service_name": "web.test",
			"destination_service_namespace": "shop"})
	source := who.with(labels{"reporter": "source", "connection_security_policy": "unknown"})
	destination := who.with(labels{"reporter": "destination", "connection_security_policy": "mutual_tls"})
	// Where there is no connection, nobody knows the other end, nor by which certificate it would be asked.
	nobody := source.with(unknown(keys(side("destination", "", "", "", ""))...)).with(unknown("source_principal"))
	http := func(code, flags string) labels {
		return labels{"request_protocol": "http", "response_code": code, "grpc_response_status": "", "response_flags": flags}
	}
	var checks []func()
	want := func(p *harness.Proxy, l labels, metrics ...string) {
		for _, metric := range metrics {
			checks = append(checks, func() { wants(t, p, metric, l) })
		}
	}
	calls := client.Client(8080)
	requests := []string{"istio_requests_total", "istio_request_duration_milliseconds"}
	for name, tc := range map[string]struct {
		request        harness.Request
		status         int
		client, server labels // nil: it counts nothing
	}{
		"web answers": {harness.Request{Host: "web.test"}, 200, source.with(http("200", "-")), destination.with(http("200", "-"))},
		"a policy refuses": {harness.Request{Host: "web.test", Path: "/secret"}, 403, source.with(http("403", "-")),
			destination.with(http("403", "-"))},
		"a timeout": {harness.Request{Host: "web.test", Path: "/slow", Header: map[string]string{"x-delay": "5s"}}, 504,
			source.with(http("504", "UT")), destination.with(http("0", "DC"))},
		"no endpoints": {harness.Request{Host: "empty.test"}, 503, nobody.with(http("503", "UH")).with(
			labels{"destination_service": "empty.test", "destination_service_name": "empty.test"}), nil},
		"an unknown host": {harness.Request{Host: "nowhere.test"}, 502, nobody.with(http("502", "-")).with(
			unknown("destination_service", "destination_service_namespace")).with(
			labels{"destination_service_name": "BlackHoleCluster"}), nil},
	} {
		calls.Want(t, name, tc.request, harness.Status(tc.status))
		want(client, tc.client, requests...)
		if tc.server != nil {
			want(server, tc.server, requests...)
		}
	}
	want(server, destination.with(http("200", "-")), "istio_request_bytes", "istio_response_bytes")
	cancelled(t, client.IP+":8080")
	want(client, source.with(http("0", "DC")), requests...)

	callGRPC(t, client.IP+":7000")
	for _, status := range []string{"0", "5", "16", "unknown"} {
		grpc := labels{"request_protocol": "grpc", "response_code": "200", "response_flags": "-",
			"grpc_response_status": status}
		want(client, source.with(grpc), requests...)
		want(server, destination.with(grpc), requests...)
	}
	// Envoy counts messages by cluster: the other end is unknown.
	messages := []string{"istio_request_messages_total", "istio_response_messages_total"}
	grpc := unknown("source_principal", "destination_principal", "connection_security_policy",
		"destination_service_namespace").with(labels{"request_protocol": "grpc"})
	want(client, source.with(unknown(keys(side("destination", "", "", "", ""))...)).with(grpc), messages...)
	want(server, destination.with(unknown(keys(side("source", "", "", "", ""))...)).with(grpc).with(
		unknown("destination_service", "destination_service_name")), messages...)

	talk(t, client.IP+":9000")
	for p, who := range map[*harness.Proxy]labels{client: source, server: destination} {
		want(p, who.with(labels{"request_protocol": "tcp", "response_flags": "-"}), "istio_tcp_connections_opened_total",
			"istio_tcp_connections_closed_total", "istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total")
	}
	for _, check := range checks { // Envoy shows what it counted after up to 5 s
		check()
	}
}

// cancelled sends a request and goes before the answer.
func cancelled(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web.test\r\nx-delay: 5s\r\n\r\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

// statuses are those of gRPC's health checks by service. gRPC does not define 17 and 2000.
var statuses = map[string]codes.Code{"": codes.OK, "unheard of": codes.NotFound, "secret": codes.Unauthenticated,
	"strange": 17, "stranger": 2000}

// serveGRPC serves gRPC's health checks.
func serveGRPC(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
		next grpc.UnaryHandler) (any, error) {
		if code, ok := statuses[request.(*healthgrpc.HealthCheckRequest).Service]; ok && code != codes.OK {
			return nil, status.Error(code, "as asked")
		}
		return next(ctx, request)
	}))
	healthgrpc.RegisterHealthServer(s, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// callGRPC makes a call for each of statuses, with one message each way.
func callGRPC(t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithAuthority("web.test"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthgrpc.NewHealthClient(conn)
	for service, want := range statuses {
		harness.Eventually(t, "gRPC", func() error {
			_, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: service})
			if got := status.Code(err); got != want {
				return fmt.Errorf("status %v, want %v: %w", got, want, err)
			}
			return nil
		})
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
