package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/push"
)

// Ports of policies are those where workloads listen: those of services that lead elsewhere, and others that nobody has, are told of.
func TestDanglingPolicyPorts(t *testing.T) {
	t.Parallel()
	const declared = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  location: MESH_INTERNAL
  ports: [{number: 8000, name: http, protocol: HTTP, targetPort: 8080}, {number: 9000, name: admin, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, labels: {app: web}}, {address: 10.0.0.2, labels: {app: web, version: v2}, ports: {admin: 9001}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: shop}
spec:
  hosts: [out.example]
  location: MESH_EXTERNAL
  ports: [{number: 443, name: tls, protocol: TLS}]
  resolution: STATIC
  endpoints: [{address: 192.0.2.1}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: jobs, namespace: shop}
spec: {metadata: {labels: {app: jobs}}, template: {ports: {metrics: 9102}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: front, namespace: edge}
spec:
  hosts: [front.example]
  location: MESH_INTERNAL
  ports: [{number: 81, name: http, protocol: HTTP, targetPort: 8081}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.3, labels: {istio: front}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec: {selector: {istio: front}, servers: [{port: {number: 81, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other-front, namespace: other-edge}
spec:
  hosts: [other-front.example]
  location: MESH_INTERNAL
  ports: [{number: 82, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.4, labels: {istio: front}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec: {workloadSelector: {labels: {app: web}}, ingress: [{port: {number: 9200, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:9200"}], egress: [{hosts: ["*/*"]}]}
---
`
	const slip = "no workload that this selects listens at port 8000, so this matches nothing: it is a port of the service web.example, whose workloads listen at 8080, and policies go by that: write 8080"
	for _, tc := range []struct{ namespace, labels, rule, want string }{
		{"shop", "app: web", `to: [{operation: {ports: ["8080"]}}]`, ""},
		{"shop", "app: web", `to: [{operation: {ports: ["8000"]}}]`, "AuthorizationPolicy shop/p spec.rules[0].to[0].operation.ports[0]: " + slip},
		{"shop", "", `to: [{operation: {ports: ["8000"]}}]`, slip},
		{"istio-system", "", `to: [{operation: {ports: ["8000"]}}]`, slip},
		{"shop", "app: web", `to: [{operation: {methods: [GET]}}, {operation: {ports: ["8080", "8000"]}}]`, ""},
		{"shop", "app: web", `when: [{key: destination.port, values: ["8000"]}]`, "spec.rules[0].when[0].values[0]: " + slip},
		{"shop", "app: web", `to: [{operation: {notPorts: ["8000"]}}]`, ""},
		{"shop", "app: web", `to: [{operation: {ports: ["9000", "9001"]}}]`, ""},
		{"shop", "app: web, version: v2", `to: [{operation: {ports: ["9000"]}}]`, "whose workloads listen at 9001"},
		{"shop", "app: web", `to: [{operation: {ports: ["8081"]}}]`, "nothing is known of a workload that this selects and that listens at port 8081 (they listen at 8080, 9000, 9001, 9200)"},
		{"shop", "app: web", `to: [{operation: {ports: ["9200"]}}]`, ""},
		{"shop", "", `to: [{operation: {ports: ["9102"]}}]`, ""},
		{"shop", "app: jobs", `to: [{operation: {ports: ["9103"]}}]`, "port 9103 (they listen at 9102)"},
		{"other", "", `to: [{operation: {ports: ["8000"]}}]`, ""},
		{"edge", "istio: ingress", `to: [{operation: {ports: ["80"]}}]`, ""},
		{"edge", "istio: front", `to: [{operation: {ports: ["8081"]}}]`, ""},
		// the service of namespace edge maps no port of the gateway in other-edge
		{"istio-system", "istio: front", `to: [{operation: {ports: ["81"]}}]`, ""},
		{"edge", "istio: front", `to: [{operation: {ports: ["81"]}}]`, "it is a port of the service front.example, whose workloads listen at 8081"},
	} {
		got := ""
		selector := ""
		if tc.labels != "" {
			selector = "selector: {matchLabels: {" + tc.labels + "}}, "
		}
		text := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: " + tc.namespace + "}\nspec: {action: DENY, " + selector + "rules: [{" + tc.rule + "}]}\n"
		for _, p := range push.Build(nil, read(t, declared+text)).Dangling() {
			got += p.String() + "\n"
		}
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s in %s for %s: got %q, want %q", tc.rule, tc.namespace, tc.labels, got, tc.want)
		}
	}
}
