package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/push"
)

// Policies that select workloads which nobody declares are told of, of each kind, in their namespaces and in the root's.
func TestDanglingSelector(t *testing.T) {
	t.Parallel()
	const declared = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  location: MESH_INTERNAL
  ports: [{number: 80, name: http}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, labels: {app: web, version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: jobs, namespace: shop}
spec: {metadata: {labels: {app: jobs}}, template: {labels: {app: other, tier: back}}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: alone, namespace: shop}
spec: {address: 10.0.0.2, labels: {app: alone}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
`
	policy := func(kind, namespace, labels, rest string) string {
		return "apiVersion: security.istio.io/v1\nkind: " + kind + "\nmetadata: {name: p, namespace: " + namespace + "}\nspec: {selector: {matchLabels: {" + labels + "}}" + rest + "}\n"
	}
	for _, tc := range []struct{ kind, namespace, labels, rest, want string }{
		{"AuthorizationPolicy", "shop", "app: web", "", ""},
		{"AuthorizationPolicy", "shop", "app: web, version: v1", "", ""},
		{"AuthorizationPolicy", "shop", "app: web, version: v2", "", "AuthorizationPolicy shop/p spec.selector.matchLabels: nothing that is declared in namespace shop has these labels"},
		{"AuthorizationPolicy", "other", "app: web", "", "nothing that is declared in namespace other has these labels"},
		{"AuthorizationPolicy", "istio-system", "app: web", "", ""},
		{"AuthorizationPolicy", "istio-system", "app: webb", "", "nothing that is declared has these labels"},
		{"AuthorizationPolicy", "shop", "app: jobs, tier: back", "", ""},
		{"AuthorizationPolicy", "shop", "app: other", "", "nothing that is declared"},
		{"AuthorizationPolicy", "shop", "app: alone", "", ""},
		{"AuthorizationPolicy", "edge-proxies", "istio: ingress", "", ""},
		{"PeerAuthentication", "shop", "app: wed", ", mtls: {mode: STRICT}", "PeerAuthentication shop/p spec.selector.matchLabels: nothing that is declared in namespace shop"},
		{"RequestAuthentication", "shop", "app: wed", ", jwtRules: [{issuer: https://a.example}]", "RequestAuthentication shop/p spec.selector.matchLabels: nothing that is declared in namespace shop"},
	} {
		got := ""
		for _, p := range push.Build(nil, read(t, declared+policy(tc.kind, tc.namespace, tc.labels, tc.rest))).Dangling() {
			got += p.String() + "\n"
		}
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s in %s for %s: got %q, want %q", tc.kind, tc.namespace, tc.labels, got, tc.want)
		}
	}
}
