package analyze_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

func peers(name, spec string) string  { return object(config.PeerAuthentication, name, spec) }
func policy(name, spec string) string { return object(config.AuthorizationPolicy, name, spec) }

func TestPeerConflicts(t *testing.T) {
	t.Parallel()
	const strict, selects = "mtls: {mode: STRICT}", "selector: {matchLabels: {app: x}}, mtls: {mode: STRICT}"
	workload := object(config.WorkloadGroup, "shop/x", "metadata: {labels: {app: x}}, template: {}")
	check(t, []testCase{
		{"one of each level", []string{peers("istio-system/mesh", strict), peers("shop/all", strict), peers("shop/x", selects), workload}, nil},
		{
			"two for a namespace", []string{peers("shop/a", strict), peers("shop/b", strict)},
			[]string{"ASH0006 mesh.yaml:6 PeerAuthentication shop/b spec: has no effect: PeerAuthentication shop/a (mesh.yaml) is for all of namespace shop too and takes precedence because it is older or sorts first"},
		},
		{
			"two for the same workloads", []string{peers("shop/a", selects), peers("shop/b", selects), workload},
			[]string{"ASH0006 mesh.yaml:6 PeerAuthentication shop/b spec: has no effect"},
		},
		{
			"a selector in the root namespace", []string{peers("istio-system/x", selects)},
			[]string{"ASH0007 mesh.yaml:1 PeerAuthentication istio-system/x spec.selector: has no effect, because policies of the root namespace (istio-system) apply to the whole mesh"},
		},
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	workload := object(config.WorkloadEntry, "shop/web-1", "address: 10.0.0.1, labels: {app: web}, serviceAccount: web")
	web := object(config.ServiceEntry, "shop/web",
		"hosts: [web.internal], ports: [{number: 80, name: http, targetPort: 8080}], resolution: STATIC, location: MESH_INTERNAL, workloadSelector: {labels: {app: web}}")
	selects := func(name, labels string) string {
		return policy(name, "selector: {matchLabels: {"+labels+"}}, rules: [{}]")
	}
	ports := func(list string) string {
		return policy("shop/p", "selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {ports: ["+list+"]}}]}]")
	}
	custom := func(provider string) string {
		return policy("shop/c", "action: CUSTOM, provider: {name: "+provider+"}, rules: [{}]")
	}
	check(t, []testCase{
		{"selects a workload", []string{workload, selects("shop/p", "app: web")}, nil},
		{
			"selects a label of the metadata", []string{
				strings.Replace(object(config.WorkloadEntry, "shop/web-1", "address: 10.0.0.1"), "namespace: shop", "namespace: shop, labels: {app: web}", 1),
				selects("shop/p", "app: web"),
			}, nil,
		},
		{"selects a Gateway's proxies", []string{gateway("edge/gw", `"*"`), selects("shop/p", "app: gw")}, nil},
		{"selects a workload of another namespace, in the root namespace", []string{workload, selects("istio-system/p", "app: web")}, nil},
		{
			"selects nobody", []string{workload, selects("shop/p", "app: wbe")},
			[]string{"IST0127 mesh.yaml:6 AuthorizationPolicy shop/p spec.selector.matchLabels: no endpoint, WorkloadEntry, WorkloadGroup or Gateway selector in namespace shop has the label app: wbe"},
		},
		{
			"selects nobody of its namespace", []string{workload, selects("data/p", "app: web")},
			[]string{"in namespace data has the label app: web"},
		},
		{"the port of the workload", []string{workload, web, ports(`"8080"`)}, nil},
		{"both ports", []string{workload, web, ports(`"80", "8080"`)}, nil},
		{"a port that nothing declares", []string{workload, web, ports(`"9000"`)}, nil},
		{
			"the port of the service", []string{workload, web, ports(`"80"`)},
			[]string{"ASH0008 mesh.yaml:11 AuthorizationPolicy shop/p spec.rules[0].to[0].operation.ports[0]: 80 is a port of service web.internal, " +
				"but its workloads listen at 8080, so this rule matches no workload | write 8080"},
		},
		{"a provider that exists", []string{service("shop/a", "web.internal", ""), custom("authorizer")}, nil},
		{
			"a provider without its service", []string{custom("authorizer")},
			[]string{`IST0101 mesh.yaml:1 AuthorizationPolicy shop/c spec.provider.name: no service web.internal has port 80, which extension provider "authorizer" needs, so requests that match this policy are denied`},
		},
		{"no such provider", []string{custom("nobody")}, []string{`the mesh has no extension provider "nobody", so requests that match this policy are denied`}},
		{"a provider of another kind", []string{custom("envoy")}, []string{`extension provider "envoy" does not receive requests for authorization`}},
	})
}

// A provider that a Telemetry names exists, receives what it is named for, and has its service.
func TestTelemetryProviders(t *testing.T) {
	t.Parallel()
	telemetry := func(spec string) string { return object(config.Telemetry, "shop/t", spec) }
	const at = "IST0101 mesh.yaml:1 Telemetry shop/t spec."
	check(t, []testCase{
		{"those that exist", []string{service("shop/a", "web.internal", ""),
			telemetry("metrics: [{providers: [{name: prometheus}]}], accessLogging: [{providers: [{name: envoy}]}], tracing: [{providers: [{name: spans}]}]")}, nil},
		{"no such provider", []string{telemetry("accessLogging: [{}, {providers: [{name: envoy}, {name: evoy}]}]")},
			[]string{at + `accessLogging[1].providers[1].name: the mesh has no extension provider "evoy", so nothing receives these access logs | add it to mesh.extensionProviders in the settings; the mesh has envoy`}},
		{"another kind", []string{telemetry("metrics: [{providers: [{name: envoy}]}]")},
			[]string{at + `metrics[0].providers[0].name: extension provider "envoy" does not receive metrics, so nothing receives these metrics | name one that does; the mesh has prometheus`}},
		{"selects nobody: the root namespace has no workload", []string{object(config.WorkloadGroup, "shop/web", "metadata: {labels: {app: web}}, template: {}"), object(config.Telemetry, "istio-system/t", "selector: {matchLabels: {app: web}}")},
			[]string{"in namespace istio-system has the label app: web, so this has no effect"}},
		{"settings for nobody", []string{object(config.ProxyConfig, "shop/p", "selector: {matchLabels: {app: web}}")},
			[]string{"IST0127 mesh.yaml:1 ProxyConfig shop/p spec.selector.matchLabels: no endpoint, WorkloadEntry, WorkloadGroup or Gateway selector in namespace shop has the label app: web"}},
		{"no service", []string{telemetry("tracing: [{providers: [{name: spans}]}]")},
			[]string{`no service web.internal has port 80, which extension provider "spans" needs, so nothing receives these spans`}},
	})
}

// A provider that the settings name by default has its service, too.
func TestDefaultProviders(t *testing.T) {
	t.Parallel()
	in := build(t).Inputs()
	m := proto.Clone(in.Mesh.Config).(*mesh.MeshConfig)
	m.DefaultProviders.Tracing = []string{"spans"}
	in.Mesh = &push.Mesh{Config: m, Domain: "cluster.local"}
	findings := analyze.Run(t.Context(), push.Build(nil, in))
	const want = `no service web.internal has port 80, which extension provider "spans" needs, so nothing receives these spans`
	if len(findings) != 1 || findings[0].Source != "settings" || findings[0].Field != "mesh.defaultProviders.tracing[0]" ||
		findings[0].Text != want || findings[0].IsError() {
		t.Errorf("got %+v", findings)
	}
	if offline := analyze.Offline(findings, true); offline[0].Severity != analyze.Info {
		t.Errorf("offline a registry may have the service: %+v", offline)
	}
}

// One Telemetry and one ProxyConfig of each level applies.
func TestLevelConflicts(t *testing.T) {
	t.Parallel()
	telemetry := func(name, spec string) string { return object(config.Telemetry, name, spec) }
	proxies := func(name, spec string) string { return object(config.ProxyConfig, name, spec) }
	selects := func(name, labels string) string { return telemetry(name, "selector: {matchLabels: {"+labels+"}}") }
	workload := object(config.WorkloadGroup, "shop/web", "metadata: {labels: {app: web, version: v1}}, template: {}")
	check(t, []testCase{
		{"one of each level", []string{telemetry("istio-system/mesh", ""), telemetry("shop/all", ""),
			selects("shop/web", "app: web"), workload}, nil},
		{"two for a namespace", []string{telemetry("shop/a", ""), telemetry("shop/b", ""), telemetry("data/c", "")},
			[]string{"IST0160 mesh.yaml:6 Telemetry shop/b spec: has no effect: Telemetry shop/a (mesh.yaml) is for all of namespace shop too and takes precedence because it is older or sorts first | merge the two objects"}},
		{"two for the mesh", []string{telemetry("istio-system/a", ""), telemetry("istio-system/b", "")},
			[]string{"IST0160 mesh.yaml:6 Telemetry istio-system/b spec: has no effect"}},
		{"two for a workload", []string{selects("shop/a", "app: web"), selects("shop/b", "version: v1"), workload},
			[]string{"IST0159 mesh.yaml:6 Telemetry shop/b spec.selector: has no effect on workloads that Telemetry shop/a (mesh.yaml) selects too: that one takes precedence because it is older or sorts first | merge the two objects"}},
		{"for different workloads", []string{selects("shop/a", "app: web"), selects("shop/b", "app: api"), workload,
			object(config.WorkloadGroup, "shop/api", "metadata: {labels: {app: api, version: v1}}, template: {}")}, nil},
		{"ProxyConfigs of each level", []string{proxies("istio-system/mesh", "concurrency: 1"), proxies("shop/all", "concurrency: 2"),
			proxies("shop/web", "selector: {matchLabels: {app: web}}"), workload}, nil},
		{"two ProxyConfigs for the mesh", []string{proxies("istio-system/a", "concurrency: 1"), proxies("istio-system/b", "concurrency: 2")},
			[]string{"ASH0014 mesh.yaml:6 ProxyConfig istio-system/b spec: has no effect: ProxyConfig istio-system/a (mesh.yaml)"}},
		{"two ProxyConfigs for a workload", []string{proxies("shop/a", "selector: {matchLabels: {app: web}}"),
			proxies("shop/b", "selector: {matchLabels: {version: v1}}"), workload},
			[]string{"ASH0014 mesh.yaml:6 ProxyConfig shop/b spec.selector: has no effect on workloads that ProxyConfig shop/a (mesh.yaml) selects too"}},
	})
}

// Callers in DENY policies that do not exist are found; those that exist, by whatever declares
// them, are not.
func TestUnknownPrincipals(t *testing.T) {
	t.Parallel()
	workload := object(config.WorkloadEntry, "shop/web-1", "address: 10.0.0.1, serviceAccount: web")
	deny := func(source string) string {
		return policy("shop/d", "action: DENY, rules: [{from: [{source: {"+source+"}}]}]")
	}
	const at = "ASH0009 mesh.yaml:6 AuthorizationPolicy shop/d spec.rules[0].from[0].source."
	for _, tc := range []testCase{
		{"exact", []string{workload, deny("principals: [cluster.local/ns/shop/sa/web], namespaces: [shop]")}, nil},
		{"service accounts", []string{workload, deny("serviceAccounts: [web, shop/web]")}, nil},
		{"joined", []string{workload, deny("principals: [cluster.local/ns/data/sa/db]")}, nil},
		{"patterns", []string{workload, deny(`principals: ["*/ns/shop/sa/web", "cluster.local/ns/*", "*"], namespaces: ["sh*", "s*p", "*h*"]`)}, nil},
		{
			"mistyped", []string{workload, deny("principals: [cluster.local/ns/shop/sa/wbe]")},
			[]string{at + "principals[0]: no workload has the service account shop/wbe (did you mean shop/web?), so this matches no caller"},
		},
		{"unknown service account", []string{workload, deny("serviceAccounts: [wep]")}, []string{at + "serviceAccounts[0]: no workload has the service account shop/wep (did you mean shop/web?)"}},
		{"of another authority", []string{workload, deny("principals: [other/ns/a/sa/b, example.com/x]")}, nil},
		{
			"a condition", []string{workload, policy("shop/d", "action: DENY, rules: [{when: [{key: source.principal, values: [cluster.local/ns/shop/sa/wbe]}]}]")},
			[]string{"spec.rules[0].when[0].values[0]: no workload has the service account shop/wbe"},
		},
		{"ALLOW", []string{workload, policy("shop/a", "rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/wbe]}}]}]")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			joined := []spiffe.ID{{TrustDomain: "cluster.local", Namespace: "data", ServiceAccount: "db"}}
			compare(t, analyze.UnknownPrincipals(t.Context(), build(t, tc.documents...), joined), tc.want)
		})
	}
}
