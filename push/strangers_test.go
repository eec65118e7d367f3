package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// strangersIn are the problems of a policy beside what is declared; joined is one more workload.
func strangersIn(t *testing.T, more, policy string) string {
	t.Helper()
	const declared = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  location: MESH_INTERNAL
  ports: [{number: 80, name: http}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, serviceAccount: web}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: jobs, namespace: batch}
spec: {template: {serviceAccount: jobs}}
---
`
	out := ""
	joined := []spiffe.ID{{TrustDomain: "cluster.local", Namespace: "clients", ServiceAccount: "cli"}}
	for _, p := range push.Build(nil, read(t, declared+more+"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: "+policy+"\n")).Strangers(joined) {
		out += p.String() + "\n"
	}
	return out
}

// Callers who are denied by names that nobody has are told of; who may be somebody is not.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ source, want string }{
		{"principals: [cluster.local/ns/shop/sa/web]", ""},
		{"principals: [cluster.local/ns/clients/sa/cli]", ""},
		{"principals: [cluster.local/ns/batch/sa/jobs]", ""},
		{"principals: [cluster.local/ns/shop/sa/wbe]", "AuthorizationPolicy shop/p spec.rules[0].from[0].source.principals[0]: no workload of this mesh has the identity cluster.local/ns/shop/sa/wbe (did you mean cluster.local/ns/shop/sa/web?), so this matches nobody"},
		{`principals: ["*"]`, ""},
		{`principals: ["*/sa/web"]`, ""},
		{`principals: ["cluster.local/ns/shop/*"]`, ""},
		{`principals: ["cluster.local/*"]`, ""},
		{`principals: ["*/sa/wbe"]`, "has the identity */sa/wbe"},
		{`principals: ["cluster.local/ns/shopp/*"]`, "has the identity cluster.local/ns/shopp/*"},
		{"principals: [other.example/ns/shop/sa/web]", "no workload has the trust domain other.example (this mesh's is cluster.local)"},
		{"notPrincipals: [cluster.local/ns/shop/sa/wbe]", ""},
		{"namespaces: [shop]", ""}, {"namespaces: [batch]", ""}, {"namespaces: [clients]", ""}, {`namespaces: ["s*p"]`, ""},
		{"namespaces: [shopp]", "source.namespaces[0]: no workload is in namespace shopp (did you mean shop?)"},
		{`namespaces: ["s*x"]`, "no workload is in namespace s*x"},
		{"serviceAccounts: [web, shop/web, batch/jobs]", ""},
		{"serviceAccounts: [jobs]", "no workload has the service account shop/jobs"},
		{"trustDomains: [cluster.local]", ""}, {`trustDomains: ["*"]`, ""}, {`trustDomains: ["cluster*"]`, ""},
		{"trustDomains: [cluster.locla]", "no workload has the trust domain cluster.locla"},
	} {
		got := strangersIn(t, "", "{action: DENY, rules: [{from: [{source: {"+tc.source+"}}]}]}")
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.source, got, tc.want)
		}
	}
}

// What a policy allows need not be there yet, and gateways that take others' certificates may see other trust domains.
func TestStrangersElsewhere(t *testing.T) {
	t.Parallel()
	const mutual = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: MUTUAL, serverCertificate: /a, privateKey: /b, caCertificates: /c}}], selector: {istio: ingress}}
---
`
	if got := strangersIn(t, "", "{rules: [{from: [{source: {namespaces: [nobody]}}]}]}"); got != "" {
		t.Errorf("a policy that allows: %q", got)
	}
	if got := strangersIn(t, mutual, "{action: DENY, rules: [{from: [{source: {principals: [partner.example/x]}}]}]}"); got != "" {
		t.Errorf("certificates of others: %q", got)
	}
	if got := strangersIn(t, "", "{action: DENY, rules: [{when: [{key: source.namespace, values: [nobody]}]}]}"); !strings.Contains(got, "spec.rules[0].when[0].values[0]: no workload is in namespace nobody") {
		t.Errorf("a condition: %q", got)
	}
}
