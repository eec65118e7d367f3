package gen

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"golang.org/x/tools/txtar"
)

// Scripts of a gateway run by phase and priority, policies between them, and those that match
// other traffic do not run.
func TestEnvoyRunsScripts(t *testing.T) {
	t.Parallel()
	const address = "127.0.17.21"
	script := func(name, fields, code string) string {
		return fmt.Sprintf("---\napiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\n"+
			"metadata: {name: %s, namespace: edge}\nspec:\n%s  lua:\n    inlineCode: |\n"+
			"      function envoy_on_request(h)\n        %s\n      end\n", name, fields, code)
	}
	note := func(text string) string { return `h:headers():add("x-seen", "` + text + `")` }
	block := func(path string) string {
		return `if h:headers():get(":path") == "` + path + `" then h:headers():add("x-block", "yes") end`
	}
	config := fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {}
  servers: [{port: {number: 18480, name: http, protocol: HTTP}, bind: %s, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: edge}
spec:
  hosts: ["*"]
  gateways: [edge]
  http: [{route: [{destination: {host: web, port: {number: 80}}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: block, namespace: edge}
spec: {action: DENY, rules: [{when: [{key: "request.headers[x-block]", values: ["yes"]}]}]}
`, address) +
		script("a", "", note("last")) + script("b", "  phase: STATS\n", block("/late")) +
		script("c", "  phase: AUTHN\n", note("low")) + script("d", "  phase: AUTHN\n  priority: 7\n", note("high")) +
		script("e", "  phase: AUTHZ\n", block("/early")) + script("f", "  phase: AUTHZ\n", note("authz")) +
		script("g", "  match: [{mode: SERVER}, {ports: [{number: 1}]}]\n", note("never")) +
		script("h", "  selector: {matchLabels: {app: other}}\n", note("never"))
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("type: router\naddresses: [10.0.0.1]\nnamespace: edge\n")},
		{Name: "config.yaml", Data: []byte(config)},
	}})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Join(r.Header["X-Seen"], " "))
	}))
	t.Cleanup(web.Close)
	runEnvoy(t, withRoutesInside(t, New(), sc), []*clusterv3.Cluster{
		staticCluster("outbound|80||web.edge.svc.cluster.local", web.Listener.Addr().String())})
	const seen = "200 high low authz last"
	for path, want := range map[string]string{"/": seen, "/late": seen, "/early": "403 RBAC: access denied"} {
		if got := asked(dialUntil(t, address+":18480"), "any.example.com", path, ""); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
