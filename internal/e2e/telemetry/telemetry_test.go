package telemetry

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// world is a mesh of three services, a, b and c. A request to a's proxy goes to b, whose
// application calls c.
type world struct {
	*harness.Mesh
	*receiver
	a, b, c *harness.Proxy
	client  *harness.Client // of a's proxy
}

const providers = `mesh:
  extensionProviders:
  - {name: otel, opentelemetry: {service: collector.test, port: 4317}}
  - {name: als, envoyHttpAls: {service: collector.test, port: 4317}}
  - {name: otel-logs, envoyOtelAls: {service: collector.test, port: 4317, logFormat: {text: "%REQ(:PATH)%", labels: {code: "%RESPONSE_CODE%"}}}}
  defaultConfig: {tracing: {sampling: 100}}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	subnet := harness.FreeSubnet(t)
	ip := func(n int) string { return fmt.Sprintf("%s%d", subnet, n) }
	mesh := fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: ops}
spec:
  hosts: [collector.test]
  resolution: STATIC
  ports: [{number: 4317, name: grpc}]
  endpoints: [{address: %[1]s5}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: shop}
spec:
  hosts: [b.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http}]
  endpoints: [{address: %[1]s7, labels: {app: b}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: c, namespace: shop}
spec:
  hosts: [c.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8081, name: http}]
  endpoints: [{address: %[1]s8, labels: {app: c}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: a, namespace: shop}
spec:
  workloadSelector: {labels: {app: a}}
  egress: [{hosts: ["*/b.test"]}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: b, namespace: shop}
spec:
  workloadSelector: {labels: {app: b}}
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
  egress: [{hosts: ["*/c.test"]}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: c, namespace: shop}
spec:
  workloadSelector: {labels: {app: c}}
  ingress: [{port: {number: 8081, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
  egress: [{hosts: ["~/*"]}]
`, subnet)
	w := &world{receiver: newReceiver(t, ip(5)+":4317")}
	w.Mesh = harness.New(t, map[string]string{"mesh.yaml": mesh}, harness.On(subnet), harness.Further(providers))
	proxy := func(name string, n int) *harness.Proxy {
		return w.Proxy(harness.Workload{Name: name + "-1", Namespace: "shop", IP: ip(n), Labels: "app=" + name + ",version=v1"})
	}
	harness.NewBackend(t, "c", ip(8)+":18080")
	serveForwarder(t, ip(7)+":18080", "http://"+ip(7)+":8081", "c.test")
	w.a, w.b, w.c = proxy("a", 6), proxy("b", 7), proxy("c", 8)
	w.client = w.a.Client(8080).Fresh() // open connections keep their access log
	return w
}

// serveForwarder serves an application that passes each request on, with the headers of a trace.
func serveForwarder(t *testing.T, address, to, host string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	forward := func(rw http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.RequestURI(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Host = host
		for _, name := range []string{"traceparent", "tracestate", "x-request-id", "x-status"} {
			if v := r.Header.Get(name); v != "" {
				out.Header.Set(name, v)
			}
		}
		resp, err := transport.RoundTrip(out)
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body) // the proxy may have gone
	}
	t.Cleanup(transport.CloseIdleConnections)
	harness.ServeHTTP(t, l, http.HandlerFunc(forward))
}

// call sends a request through all three services, until it gets the status.
func (w *world) call(path string, status int) {
	w.T.Helper()
	w.client.Want(w.T, path, harness.Request{Host: "b.test", Path: path, Header: map[string]string{"x-status": fmt.Sprint(status)}},
		harness.Status(status))
}

// telemetry writes the Telemetry of a name.
func (w *world) telemetry(name, namespace, spec string) {
	w.Write(name+".yaml", "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: "+name+", namespace: "+namespace+"}\nspec: "+spec+"\n")
}

// logs waits until a proxy logs requests as want says.
func (w *world) logs(p *harness.Proxy, want bool) {
	w.T.Helper()
	harness.Eventually(w.T, fmt.Sprintf("%s logs: %v", p.IP, want), func() error {
		if strings.Contains(p.ConfigDump(), `"path": "/dev/stdout"`) != want {
			return errors.New("its listeners are the previous ones")
		}
		return nil
	})
}

// Access logs, spans and the services that receive them, as Telemetry objects say.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call("/ready", http.StatusOK)
	w.accessLogs()
	w.accessLogServices()
	w.traces() // meanwhile a would have written its log
	w.metrics()
	if log := w.a.Log(); strings.Contains(log, "GET /good") || strings.Contains(log, "GET /worse") {
		t.Errorf("the log has requests that the filter, or the Telemetry that disables it, keeps out:\n%s", log)
	}
}

// accessLogs: a filter chooses what is logged, and only the proxies that an object selects get other
// listeners.
func (w *world) accessLogs() {
	const updates = "listener_manager.lds.update_success"
	b, c := w.b.Stat(updates), w.c.Stat(updates)
	w.telemetry("a", "shop", `{selector: {matchLabels: {app: a}}, accessLogging: [{providers: [{name: envoy}], filter: {expression: "response.code >= 500"}}]}`)
	w.logs(w.a, true)
	w.call("/good", http.StatusOK)
	harness.Eventually(w.T, "the access log", func() error {
		w.call("/bad", http.StatusInternalServerError)
		if !strings.Contains(w.a.Log(), "GET /bad HTTP/1.1\" 500") {
			return fmt.Errorf("it lacks the request that failed:\n%s", w.a.Log())
		}
		return nil
	})
	w.telemetry("a", "shop", `{selector: {matchLabels: {app: a}}, accessLogging: [{providers: [{name: envoy}], disabled: true}]}`)
	w.logs(w.a, false)
	w.call("/worse", http.StatusInternalServerError)
	if nowB, nowC := w.b.Stat(updates), w.c.Stat(updates); nowB != b || nowC != c {
		w.T.Errorf("listeners of b were updated %d times, of c %d times, by a Telemetry of a", nowB-b, nowC-c)
	}
}

// accessLogServices: entries arrive by Envoy's access log service, and by OpenTelemetry.
func (w *world) accessLogServices() {
	w.telemetry("b", "shop", `{selector: {matchLabels: {app: b}}, accessLogging: [{match: {mode: SERVER}, providers: [{name: als}]}]}`)
	w.telemetry("c", "shop", `{selector: {matchLabels: {app: c}}, accessLogging: [{providers: [{name: otel-logs}]}]}`)
	harness.Eventually(w.T, "access logs by gRPC", func() error {
		w.call("/logged", http.StatusOK)
		entries, logs := received(w.receiver, &w.entries), received(w.receiver, &w.receiver.logs)
		node := "sidecar~" + w.b.IP + "~b-1.shop~shop.svc.cluster.local: /logged"
		if !slices.Contains(entries, node) || !slices.Contains(logs, "c.shop: /logged 200") {
			return fmt.Errorf("entries: %q, logs: %q", entries, logs)
		}
		return nil
	})
	for _, e := range received(w.receiver, &w.entries) {
		if !strings.HasPrefix(e, "sidecar~"+w.b.IP) {
			w.T.Errorf("an entry of a proxy that the Telemetry does not select: %s", e)
		}
	}
}

// traces: the spans of one request through three services are one trace.
func (w *world) traces() {
	w.telemetry("everywhere", "istio-system", `{tracing: [{providers: [{name: otel}], customTags: {tier: {literal: {value: gold}}}}]}`)
	harness.Eventually(w.T, "a trace through three services", func() error {
		w.call("/traced", http.StatusOK)
		spans := received(w.receiver, &w.spans)
		for _, root := range spans {
			if root.parent == "" && w.connected(spans, root) {
				return nil
			}
		}
		time.Sleep(200 * time.Millisecond)
		return fmt.Errorf("spans: %+v", spans)
	})
	spans := received(w.receiver, &w.spans)
	last := spans[len(spans)-1]
	service, _, _ := strings.Cut(last.service, ".")
	if last.tags["tier"] != "gold" || last.tags["istio.canonical_service"] != service ||
		last.tags["istio.canonical_revision"] != "v1" || last.tags["istio.namespace"] != "shop" {
		w.T.Errorf("a span of %s has the tags %v", last.service, last.tags)
	}

	w.telemetry("everywhere", "istio-system", `{tracing: [{providers: [{name: otel}], disableSpanReporting: true}]}`)
	harness.Eventually(w.T, "tracing is disabled", func() error {
		for _, p := range []*harness.Proxy{w.a, w.b, w.c} {
			if strings.Contains(p.ConfigDump(), `"gold"`) {
				return errors.New("a proxy still traces")
			}
		}
		return nil
	})
}

// metrics: one gets a tag and loses another, one is disabled, the others stay.
func (w *world) metrics() {
	w.telemetry("everywhere", "istio-system", `{metrics: [{overrides: [{match: {metric: REQUEST_COUNT}, tagOverrides: {part: {value: "re.extract(request.path, '^/([a-z]+)', '\\\\1')"}, destination_version: {operation: REMOVE}}}, {match: {metric: REQUEST_DURATION, mode: CLIENT}, disabled: true}]}]}`)
	harness.Eventually(w.T, "metrics with other tags", func() error {
		w.call("/counted/1", http.StatusOK)
		requests, err := metric(w.a, "istio_requests_total")
		if err != nil {
			return err
		}
		for _, m := range requests.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			if _, ok := have["destination_version"]; !ok && have["part"] == "counted" && have["destination_workload"] != "" {
				return nil
			}
		}
		return fmt.Errorf("they are %v", requests)
	})
	// durations of an answer that was not seen before
	timed := func(p *harness.Proxy) bool {
		durations, err := metric(p, "istio_request_duration_milliseconds")
		if err != nil {
			w.T.Fatal(err)
		}
		return slices.ContainsFunc(durations.GetMetric(), func(m *dto.Metric) bool {
			return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == "418" })
		})
	}
	w.call("/counted/2", http.StatusTeapot)
	harness.Eventually(w.T, "durations at the server", func() error {
		if !timed(w.c) {
			return errors.New("the last request is not counted")
		}
		return nil
	})
	if timed(w.a) {
		w.T.Error("the duration is counted at the client, which is disabled")
	}
}

// metric reads a metric at the agent of a proxy.
func metric(p *harness.Proxy, name string) (*dto.MetricFamily, error) {
	resp, err := http.Get("http://" + p.IP + ":15020/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	return families[name], err
}

// connected reports whether a trace goes from a to b, and from b to c.
func (w *world) connected(spans []span, root span) bool {
	at := root
	if at.service != "a.shop" {
		return false
	}
	for _, next := range []struct {
		service string
		kind    tracev1.Span_SpanKind
	}{{"b.shop", tracev1.Span_SPAN_KIND_SERVER}, {"b.shop", tracev1.Span_SPAN_KIND_CLIENT}, {"c.shop", tracev1.Span_SPAN_KIND_SERVER}} {
		i := slices.IndexFunc(spans, func(s span) bool {
			return s.trace == root.trace && s.parent == at.id && s.service == next.service && s.kind == next.kind
		})
		if i < 0 {
			return false
		}
		at = spans[i]
	}
	return true
}
