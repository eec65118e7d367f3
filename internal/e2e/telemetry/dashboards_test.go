package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// root is the folder of go.mod.
const root = "../../.."

// observed is a mesh with HTTP, gRPC and TCP, a service outside of the mesh, one without endpoints,
// and metrics of an application. %s is the address outside.
const observed = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web-vm, namespace: shop, annotations: {prometheus.io/port: "19100", prometheus.io/path: /app}}
spec:
  metadata: {labels: {app: web, version: v1}}
  template: {serviceAccount: web}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: client
  namespace: shop
  annotations: {proxy.istio.io/config: "{proxyStatsMatcher: {inclusionSuffixes: [lb_subsets_active]}}"}
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
  - {number: 8081, name: grpc, protocol: GRPC}
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
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [outside.test]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 9001, name: tcp, protocol: TCP}]
  endpoints: [{address: %s, ports: {http: 18080, tcp: 19000}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}
  - {port: {number: 8081, name: grpc, protocol: GRPC}, defaultEndpoint: "0.0.0.0:18081"}
  - {port: {number: 9000, name: tcp, protocol: TCP}, defaultEndpoint: "0.0.0.0:19000"}
  egress:
  - hosts: ["~/*"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  http:
  - {match: [{uri: {prefix: /slow}}], timeout: 100ms, route: [{destination: {host: web.test, port: {number: 8080}}}]}
  - {match: [{port: 8081}], route: [{destination: {host: web.test, port: {number: 8081}}}]}
  - {route: [{destination: {host: web.test, port: {number: 8080}}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{to: [{operation: {paths: [/secret], ports: ["8080"]}}]}]
`

// changing is an object that is written again and again, so that configuration is sent.
const changing = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: outside, namespace: shop}
spec:
  hosts: [outside.test]
  http: [{timeout: %ds, route: [{destination: {host: outside.test}}]}]
`

// traffic calls all that observed has, with success and failure, until the test ends. A server is also
// called past the caller's Envoy, without mutual TLS.
func traffic(t *testing.T, client, server *harness.Proxy) {
	t.Helper()
	rpc, err := grpc.NewClient("passthrough:///"+client.IP+":8081", grpc.WithAuthority("web.test:8081"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	calls, plain := client.Client(8080), server.Client(8080)
	failed, slow := map[string]string{"x-status": "500"}, map[string]string{"x-delay": "1s"}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, r := range []harness.Request{{Host: "web.test"}, {Host: "web.test", Path: "/secret"},
				{Host: "web.test", Header: failed}, {Host: "web.test", Path: "/slow", Header: slow},
				{Host: "empty.test"}, {Host: "outside.test"}} {
				if _, err := calls.Do(r); err != nil {
					t.Logf("%s: %v", r.Host, err)
				}
			}
			if _, err := plain.Do(harness.Request{Host: "web.test"}); err != nil {
				t.Logf("without mutual TLS: %v", err)
			}
			_, err := healthpb.NewHealthClient(rpc).Check(ctx, &healthpb.HealthCheckRequest{})
			if err == nil { // and a failure
				_, _ = healthpb.NewHealthClient(rpc).Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"})
			} else if ctx.Err() == nil {
				t.Logf("gRPC: %v", err)
			}
			for _, address := range []string{client.IP + ":9000", client.IP + ":9001", server.IP + ":9000"} {
				if err := greet(address); err != nil {
					t.Logf("TCP to %s: %v", address, err)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		if err := rpc.Close(); err != nil {
			t.Error(err)
		}
	})
}

// greet reads the greeting of a TCP server and closes the connection.
func greet(address string) error {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 100))
	return err
}

// serve runs a server until the test ends.
func serve(t *testing.T, address string, run func(net.Listener) error, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(l) // until stop
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// A real Prometheus that scrapes agents and ashored has data for every panel of our dashboards, and
// of Istio's for the mesh, services and workloads.
func TestDashboards(t *testing.T) {
	t.Parallel()
	subnet := harness.FreeSubnet(t)
	outside := subnet + "200"
	m := harness.New(t, map[string]string{"mesh.yaml": fmt.Sprintf(observed, outside)}, harness.Secure(""),
		harness.On(subnet))
	ip := m.IP()
	for _, at := range []string{ip, outside} {
		harness.NewBackend(t, "web", at+":18080")
		harness.TCPEcho(t, "web", at+":19000")
	}
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	serve(t, ip+":18081", rpc.Serve, rpc.Stop)
	metrics := http.NewServeMux()
	metrics.HandleFunc("/app", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "# TYPE app_orders_total counter\napp_orders_total 3")
	})
	app := &http.Server{ReadHeaderTimeout: time.Second, Handler: metrics}
	serve(t, ip+":19100", app.Serve, func() { _ = app.Close() })
	server := m.Join(harness.Workload{Name: "web-1", Group: "shop/web-vm", IP: ip})
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client"})
	traffic(t, client, server)
	p := startPrometheus(t, m)

	all := []query{{"the application", "app_orders_total == 3 and on (instance) ashore_agent_application_up == 1"},
		{"what alerts ask for", `up{kind="ashored"} + on () group_left () count(up{kind="agent"}) == 3`}}
	ours := variables{"service": "web.test", "namespace": "shop", "workload": "web-vm|client", "instance": ".*"}
	for _, file := range files(t, root+"/dashboards") {
		for _, q := range queries(t, file, ours) {
			if !slices.ContainsFunc(nothingFailed, func(panel string) bool { return strings.HasSuffix(q.panel, ", "+panel) }) {
				all = append(all, q)
			} else if _, err := p.query(q.expr); err != nil {
				t.Error(err)
			}
		}
	}
	istio := variables{"service": "web.test", "namespace": "shop", "workload": "web-vm|client",
		"qrep": "(source|destination)", "srccluster": ".*", "srcns": ".*", "srcwl": ".*", "dstcluster": ".*", "dstns": ".*",
		"dstwl": ".*", "dstsvc": ".*"}
	for _, name := range []string{"istio-mesh-dashboard.gen.json", "istio-service-dashboard.json",
		"istio-workload-dashboard.json"} {
		for _, q := range queries(t, filepath.Join(istioDashboards(t), name), istio) {
			if !notOfClients(q.expr) {
				all = append(all, q)
			}
		}
	}
	t.Logf("%d queries", len(all))
	if len(all) < 200 {
		t.Error("these are not all")
	}
	changes := 0
	harness.Eventually(t, "every query has data", func() error {
		changes++
		m.Write("change.yaml", fmt.Sprintf(changing, changes))
		time.Sleep(500 * time.Millisecond)
		var missing []string
		all = slices.DeleteFunc(all, func(q query) bool {
			n, err := p.query(q.expr)
			if err != nil {
				missing = append(missing, err.Error())
			} else if n == 0 {
				missing = append(missing, q.panel+": "+q.expr)
			}
			return err == nil && n > 0
		})
		if len(missing) > 0 {
			return fmt.Errorf("no data for %d:\n%s", len(missing), strings.Join(missing, "\n"))
		}
		return nil
	})
	exposition(t, server)
}

// nothingFailed are panels whose queries have no data while nothing is wrong.
var nothingFailed = []string{
	"Responses rejected, by type", "Certificates issued and refused", "Unhealthy workloads",
}

// notOfClients says that a query of Istio's dashboards asks for what a client's Envoy does not have: a
// client reports the policy "unknown", as Istio's do, and only servers count bytes of requests.
func notOfClients(expr string) bool {
	asks := regexp.MustCompile(`connection_security_policy="mutual_tls"|istio_(request|response)_bytes`)
	return strings.Contains(expr, `reporter="source"`) && asks.MatchString(expr)
}

// exposition checks the metrics of an agent by promtool. Envoy's have no help, and names of its own.
func exposition(t *testing.T, p *harness.Proxy) {
	t.Helper()
	body, err := get("http://" + p.IP + ":15020/metrics")
	if err != nil {
		t.Fatal(err)
	}
	out, code := promtool(t, string(body), "check", "metrics")
	if code != 0 && code != 3 { // 3: it would name some otherwise
		t.Errorf("promtool check metrics ends with %d:\n%s", code, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "ashore_") {
			t.Errorf("promtool check metrics: %s", line)
		}
	}
	names := strings.Count(string(body), "\n# TYPE")
	t.Logf("%d metrics, %d bytes", names, len(body))
	if names > 200 {
		t.Errorf("an agent has %d metrics", names)
	}
}

// Statistics that an annotation adds are there when the agent has started again.
func TestStatsMatcher(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"mesh.yaml": fmt.Sprintf(observed, "127.0.0.1")}, harness.Secure(""))
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client"})
	added := func(want bool) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("lb_subsets_active: %t", want), func() error {
			body, err := get("http://" + client.IP + ":15020/metrics")
			if err == nil && strings.Contains(string(body), "envoy_cluster_lb_subsets_active") != want {
				err = fmt.Errorf("%.3000s", body)
			}
			return err
		})
	}
	added(false)
	client.WantLine("configuration", "live")
	client.Stop()
	client.Run()
	client.Ready()
	added(true)
}

// The dashboards are small. Each alert is valid, fires when it should, and has a paragraph in the
// runbook.
func TestDashboardFiles(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, root+"/dashboards") {
		if n := len(panels(t, file)); n < 6 || n > 12 {
			t.Errorf("%s has %d panels, want 6 to 12", file, n)
		}
	}
	const rules, tests = root + "/dashboards/alerts.yaml", "testdata/alerts.yaml"
	for verb, file := range map[string]string{"check": rules, "test": tests} {
		if out, code := promtool(t, "", verb, "rules", file); code != 0 {
			t.Errorf("promtool %s rules: %s", verb, out)
		}
	}
	alerts, doc, tested := read(t, rules), read(t, root+"/docs/runbook.md"), read(t, tests)
	names := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(alerts, -1)
	for _, name := range names {
		if !strings.Contains(doc, "\n### "+name[1]+"\n\n") || !strings.Contains(tested, `"`+name[1]+`"`) {
			t.Errorf("docs/runbook.md or %s says nothing about %s", tests, name[1])
		}
	}
	if headings := strings.Count(doc, "\n### "); len(names) < 10 || headings != len(names) {
		t.Errorf("%d alerts and %d paragraphs", len(names), headings)
	}
	documented := read(t, root+"/docs/metrics.md") + read(t, root+"/docs/agent.md")
	for _, metric := range regexp.MustCompile(`\b(ashore|pilot|citadel)_\w+`).FindAllString(alerts, -1) {
		if !strings.Contains(documented, metric) {
			t.Errorf("alerts.yaml: %s is not documented", metric)
		}
	}
}

// The variables of the dashboard of workloads have namespaces and workloads that only call others, and
// those that only use TCP.
func TestWorkloadVariables(t *testing.T) {
	t.Parallel()
	var board struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, root+"/dashboards/workload.json")), &board); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"namespace": `[{labels: '{ns="a"}', value: 1}, {labels: '{ns="b"}', value: 1}]`,
		"workload": `[{labels: '{wl="api"}', value: 1}, {labels: '{wl="web"}', value: 1}]`}
	tests := ""
	for _, v := range board.Templating.List {
		expr, isResult := strings.CutPrefix(v.Query, "query_result(")
		expr = strings.ReplaceAll(strings.TrimSuffix(expr, ")"), "$namespace", ".*")
		if isResult && want[v.Name] != "" {
			tests += fmt.Sprintf("  - {expr: %q, eval_time: 0m, exp_samples: %s}\n", expr, want[v.Name])
			delete(want, v.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no queries for %v", want)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	text := `tests:
- input_series:
  - series: 'istio_tcp_connections_opened_total{reporter="source",source_workload_namespace="a",source_workload="web",` +
		`destination_workload_namespace="b",destination_workload="api"}'
    values: "1"
  promql_expr_test:
` + tests
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := promtool(t, "", "test", "rules", file); code != 0 {
		t.Errorf("promtool test rules: %s\n%s", out, text)
	}
}

// variables are the values of a dashboard's variables.
type variables map[string]string

// panel is what a test reads of a panel of Grafana.
type panel struct {
	Title   string
	Panels  []panel
	Targets []struct{ Expr string }
}

type query struct{ panel, expr string }

// panels returns the panels of a dashboard, those in rows too.
func panels(t *testing.T, file string) []panel {
	t.Helper()
	var board panel
	if err := json.Unmarshal([]byte(read(t, file)), &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	all := board.Panels
	for _, p := range board.Panels {
		all = append(all, p.Panels...)
	}
	return all
}

// queries returns the queries of a dashboard, with values instead of variables.
func queries(t *testing.T, file string, v variables) []query {
	t.Helper()
	v["__rate_interval"] = "15s"
	var out []query
	for _, p := range panels(t, file) {
		for _, target := range p.Targets {
			if target.Expr == "" {
				continue
			}
			expr := regexp.MustCompile(`\$\w+`).ReplaceAllStringFunc(target.Expr, func(name string) string {
				value, known := v[name[1:]]
				if !known {
					t.Fatalf("%s, panel %s: unknown variable %s", file, p.Title, name)
				}
				return value
			})
			out = append(out, query{filepath.Base(file) + ", " + p.Title, expr})
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no queries", file)
	}
	return out
}

// istioDashboards is the folder of Istio's dashboards, in the module that tools/istio pins.
func istioDashboards(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "istio.io/istio")
	cmd.Dir = root + "/tools/istio"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download istio.io/istio: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "manifests/addons/dashboards")
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	out, err := filepath.Glob(dir + "/*.json")
	if err != nil || len(out) == 0 {
		t.Fatalf("%s: %v, %v", dir, out, err)
	}
	return out
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
