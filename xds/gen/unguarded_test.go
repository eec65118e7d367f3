package gen

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// A workload that its proxy does not stand before is told of when policies are to protect it, and only then.
func TestUnguardedWorkloads(t *testing.T) {
	t.Parallel()
	const (
		service = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example], location: MESH_INTERNAL, ports: [{number: 80, name: http}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}
---
`
		allow = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec: {rules: [{}]}
---
`
		tokens = `
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: a, namespace: shop}
spec: {jwtRules: [{issuer: https://a.example}]}
---
`
		strict = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: a, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
`
		ingress = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: a, namespace: shop}
spec: {ingress: [{port: {number: 80, name: http, protocol: HTTP}, defaultEndpoint: 127.0.0.1:8080}]}
---
`
	)
	for name, tc := range map[string]struct {
		interception, config string
		want                 bool
	}{
		"nothing is to protect it":       {"NONE", service, false},
		"who may call is judged":         {"NONE", service + allow, true},
		"tokens are looked at":           {"NONE", service + tokens, true},
		"mutual TLS alone":               {"NONE", service + strict, true},
		"it serves nothing":              {"NONE", allow, false},
		"ingress listeners stand before": {"NONE", service + allow + strict + ingress, false},
		"connections are redirected":     {"REDIRECT", service + allow + strict, false},
	} {
		sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
			{Name: "node.yaml", Data: []byte("addresses: [10.0.0.9]\nnamespace: shop\nidentity: true\ninterception: " + tc.interception + "\n")},
			{Name: "config.yaml", Data: []byte(tc.config)},
		}})
		g := New()
		held := g.Set(ListenerType, sc)
		told := false
		for _, p := range g.Refused() {
			told = told || strings.HasPrefix(p.Text, "the workload 10.0.0.9 takes its connections itself")
		}
		if told != tc.want {
			t.Errorf("%s: told of: %v", name, told)
		}
		if held.Get("10.0.0.9") != nil {
			t.Errorf("%s: a listener stands for it", name)
		}
	}
}
