package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const operatorMesh = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: client, namespace: shop}
spec: {metadata: {labels: {app: client}}, template: {serviceAccount: client}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
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
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
  egress: [{hosts: ["~/*"]}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
  egress: [{hosts: ["*/*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  http:
  - {match: [{uri: {exact: /teapot}}], directResponse: {status: 418}}
  - {match: [{uri: {prefix: /moved}}], redirect: {uri: /there}}
  - {match: [{uri: {regex: "/lost/[0-9]+"}}], route: [{destination: {host: web.test, subset: none}}]}
  - {match: [{uri: {prefix: /old/}}], rewrite: {uri: /secret/}, route: [{destination: {host: web.test}}]}
  - {match: [{uri: {prefix: /}, method: {exact: PUT}}], route: [{destination: {host: empty.test}}]}
  - {match: [{headers: {x-known: {exact: "yes"}}, uri: {prefix: /hidden}}], route: [{destination: {host: web.test}}]}
  - {match: [{uri: {prefix: /open}}, {uri: {prefix: /secret}}], route: [{destination: {host: web.test}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{to: [{operation: {paths: [/secret/*], ports: ["8080"]}}]}]
`

// ctl runs ashorectl and returns what it prints.
func ctl(t *testing.T, m *harness.Mesh, args ...string) string {
	t.Helper()
	out, code, err := harness.Command("ashorectl", append([]string{"--socket", m.Socket()}, args...)...)
	if err != nil || code != 0 {
		t.Errorf("ashorectl %s: exit code %d, %v\n%s", args, code, err, out)
	}
	return out
}

// What operators ask is what happens: Prometheus' targets can be scraped, "explain request" names the
// status that the request gets, tables show what proxies have, "top" counts requests, and levels of
// logs change.
func TestOperator(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"mesh.yaml": operatorMesh}, harness.Secure(""))
	ip := m.IP()
	harness.NewBackend(t, "web", ip+":18080")
	prometheus := startPrometheus(t, m)
	web := m.Join(harness.Workload{Name: "web-1", Group: "shop/web", IP: ip})
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client"})
	calls := client.Client(8080)
	calls.Want(t, "web answers", harness.Request{Host: "web.test", Path: "/open"}, harness.Status(http.StatusOK))

	targets(t, m, web, client)
	explained(t, m, calls)
	shown(t, m, client)
	top(t, m, client, calls, "http://"+prometheus.address)

	if got := ctl(t, m, "admin", "log", "--level", "debug"); got != "debug\n" {
		t.Errorf("the level is %q", got)
	}
	harness.Eventually(t, "ashored logs at the level debug", func() error {
		m.Write("more.yaml", strings.Replace(operatorMesh[:strings.Index(operatorMesh, "---")], "name: web", "name: more", 1))
		if !strings.Contains(m.Ashored.Log(), "[DEBUG]") {
			return fmt.Errorf("no line of the level debug in\n%s", m.Ashored.Log())
		}
		return nil
	})
	for _, tc := range []struct{ args, want string }{
		{"log --level debug", "debug"}, {"log", "debug"}, {"proxy-log --level http:trace", "http: trace"}, {"proxy-log", "rbac: "},
	} {
		out, code, err := harness.Command("ashore-agent", append(strings.Fields(tc.args), "--state", client.State)...)
		if err != nil || code != 0 || !strings.Contains(out, tc.want) {
			t.Errorf("ashore-agent %s: exit code %d, %v\n%s", tc.args, code, err, out)
		}
	}
}

// targets checks that the discovered targets are the proxies and ashored, and can be scraped.
func targets(t *testing.T, m *harness.Mesh, proxies ...*harness.Proxy) {
	t.Helper()
	get := func(url, token string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s %s", url, resp.Status, body)
		}
		return string(body), err
	}
	if _, err := get("http://"+m.Metrics()+"/prometheus/targets", "guess"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with another token: %v", err)
	}
	text, err := get("http://"+m.Metrics()+"/prometheus/targets", "secret")
	var list []struct {
		Targets []string
		Labels  map[string]string
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	if err != nil || len(list) != 1+len(proxies) {
		t.Fatalf("%v in %s", err, text)
	}
	for _, target := range list {
		metric := map[string]string{"ashored": "pilot_xds ", "agent": "istio_requests_total{"}[target.Labels["__meta_ashore_kind"]]
		body, err := get("http://"+target.Targets[0]+"/metrics", "")
		if err != nil || metric == "" || !strings.Contains(body, metric) {
			t.Errorf("scrape %v: %v, no %q in %.2000s", target, err, metric, body)
		}
	}
	for _, p := range proxies {
		if !strings.Contains(text, `"`+p.IP+`:15020"`) {
			t.Errorf("no target of %s in %s", p.IP, text)
		}
	}
}

// explained checks that requests get the status that is explained.
func explained(t *testing.T, m *harness.Mesh, calls *harness.Client) {
	t.Helper()
	for _, tc := range []struct {
		method, host, path string
		flags              string
	}{
		{"GET", "web.test", "/open", ""},
		{"GET", "web.test", "/secret/a", ""},
		{"GET", "web.test", "/old/a", ""},
		{"GET", "web.test", "/teapot", ""},
		{"GET", "web.test", "/moved?a=b", ""},
		{"GET", "web.test", "/lost/12", "NC"},
		{"GET", "web.test", "/lost/x", "NR"},
		{"PUT", "web.test", "/open", "UH"},
		{"GET", "empty.test", "/", "UH"},
		{"GET", "nobody.test", "/", ""},
	} {
		answer, err := calls.Do(harness.Request{Method: tc.method, Host: tc.host, Path: tc.path})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Outcomes []struct {
				Code      int
				If, Flags string
			}
		}
		text := ctl(t, m, "explain", "request", "client-1.shop", tc.host+":8080", "--method", tc.method, "--path", tc.path, "-o", "json")
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Outcomes) != 1 {
			t.Errorf("%v: %v, %s", tc, err, text)
			continue
		}
		if o := got.Outcomes[0]; max(o.Code, http.StatusOK) != answer.Status || o.Flags != tc.flags || o.If != "" {
			t.Errorf("%v is answered with %d, and explained as\n%s", tc, answer.Status, text)
		}
	}
	unsure := ctl(t, m, "explain", "request", "shop/client", "web.test:8080", "--path", "/hidden")
	if !strings.Contains(unsure, "only if    the header x-known matches") || !strings.Contains(unsure, "404 NR") {
		t.Errorf("a header that is not known is explained as\n%s", unsure)
	}
}

// shown checks what tables show of proxies, a service and a workload.
func shown(t *testing.T, m *harness.Mesh, client *harness.Proxy) {
	t.Helper()
	socket := filepath.Join(client.State, "admin.sock")
	for args, want := range map[string][]string{
		"proxy-status": {"NAME ", "CDS ", "ECDS", "client-1.shop  sidecar  SYNCED"},
		"pc cluster client-1.shop --fqdn web.test":            {"web.test      8080  -       outbound   EDS   -\n"},
		"pc listener client-1.shop --port 8080":               {"  8080  ", "Route: 8080"},
		"pc route client-1.shop --name 8080":                  {"web.test:8080", "/teapot", "web.shop"},
		"pc endpoint client-1.shop --port 8080":               {":8080", "HEALTHY", "outbound|8080||web.test"},
		"pc all client-1.shop":                                {"SERVICE FQDN", "VHOST NAME", "ENDPOINT", "trust-bundle"},
		"pc ecds web-1.shop -o json":                          {`"name":`, `"typedConfig":`},
		"pc log client-1.shop --admin-socket " + socket:       {"rbac: ", "ashore-agent proxy-log --level LEVEL"},
		"pc bootstrap client-1.shop --admin-socket " + socket: {"id: sidecar~", "dynamic_resources:"},
		"describe service web.test": {"web.test", "ENDPOINT", "VirtualService shop/web", "routes requests for web.test",
			"shop/web-", ":8080", "PERMISSIVE (default)", "AuthorizationPolicy shop/web"},
		"describe workload web-1.shop":    {"web.test", "healthy", "spiffe://", "Sidecar shop/web"},
		"describe workload client-1.shop": {"no endpoints", "shop/client-1.shop", "Sidecar shop/client"},
	} {
		got := ctl(t, m, strings.Fields(args)...)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("ashorectl %s: no %q in\n%s", args, w, got)
			}
		}
	}
}

// top checks that requests are counted while they are made, by an agent and by Prometheus.
func top(t *testing.T, m *harness.Mesh, client *harness.Proxy, calls *harness.Client, prometheus string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var last error
		for i := 0; ctx.Err() == nil; i++ {
			path := []string{"/open", "/open", "/open", "/lost/1"}[i%4]
			if _, err := calls.Do(harness.Request{Host: "web.test", Path: path}); err != nil {
				last = err
			}
			time.Sleep(5 * time.Millisecond)
		}
		done <- last
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	// has checks that a row has requests and a latency.
	has := func(row, out string) error {
		fields := strings.Fields(out)
		if i := slices.Index(fields, row); i < 0 || fields[i+1] == "0.00" || fields[i+3] == "-" {
			return fmt.Errorf("no %s with requests and latency in\n%s", row, out)
		}
		return nil
	}
	if err := has("web.test", ctl(t, m, "top", "services", "--proxy", client.IP, "--window", "6s")); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "top of Prometheus", func() error {
		return has("shop/web", ctl(t, m, "top", "workloads", "--prometheus", prometheus, "--window", "10s"))
	})
}
