package gen

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// A workload that its proxy does not stand before is told of when policies are to protect it, and
// only then.
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
		held := g.Set(resource.ListenerType, sc)
		told := false
		for _, p := range resource.Problems(held) {
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

// Ports at which callers do not meet the proxy are told of: each port by itself, and by what its
// callers speak there. The agent is told of the same ports.
func TestBypassedPorts(t *testing.T) {
	t.Parallel()
	service := func(labels string) string {
		return `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, targetPort: 8080}, {number: 90, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.9, serviceAccount: web, labels: {` + labels + `}}]
---
`
	}
	const (
		none    = "ashore.io/interception: none"
		ingress = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: a, namespace: shop}
spec: {ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: 127.0.0.1:8080}]}
---
`
		mode = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: a, namespace: shop}
spec: {mtls: {mode: MODE}}
---
`
		plain, broken, unguarded = "callers speak plaintext there", "callers speak mutual TLS there", "its policies"
	)
	for name, tc := range map[string]struct {
		node, config string
		ports        string   // that the agent is told of
		want         []string // of the problems: where, and what
	}{
		"known to callers":           {"identity: true\ninterception: NONE", service(none), "90, 8080", []string{"at ports 90, 8080", plain}},
		"not known to callers":       {"identity: true\ninterception: NONE", service(""), "90, 8080", []string{"at ports 90, 8080", broken}},
		"an ingress listener":        {"identity: true\ninterception: NONE", service(none) + ingress, "90", []string{"at port 90", plain}},
		"and STRICT":                 {"identity: true\ninterception: NONE", service(none) + ingress + strings.Replace(mode, "MODE", "STRICT", 1), "90", []string{"at port 90", plain, "at port 90", unguarded}},
		"DISABLE":                    {"identity: true\ninterception: NONE", service(none) + strings.Replace(mode, "MODE", "DISABLE", 1), "", nil},
		"plaintext by its label":     {"identity: true\ninterception: NONE", service("security.istio.io/tlsMode: disabled"), "", nil},
		"without a certificate":      {"interception: NONE", service(none), "", nil},
		"connections are redirected": {"identity: true\ninterception: REDIRECT", service(""), "", nil},
	} {
		sc := *scopeOf(t, &txtar.Archive{Files: []txtar.File{
			{Name: "node.yaml", Data: []byte("addresses: [10.0.0.9]\nnamespace: shop\n" + tc.node + "\n")},
			{Name: "config.yaml", Data: []byte(tc.config)},
		}})
		sc.Trust = &push.Trust{Roots: []string{"root"}}
		g := New()
		held := g.Set(resource.ListenerType, &sc)
		var got []string
		for _, p := range resource.Problems(held) {
			if strings.Contains(p.Text, "takes its connections itself") {
				got = append(got, p.Text)
			}
		}
		if len(got) != len(tc.want)/2 {
			t.Errorf("%s: problems %q", name, got)
		}
		for i := 0; i+1 < len(tc.want); i += 2 {
			if !slices.ContainsFunc(got, func(s string) bool {
				return strings.Contains(s, tc.want[i]+",") &&
					strings.Contains(s, tc.want[i+1])
			}) {
				t.Errorf("%s: problems %q, want one with %q and %q", name, got, tc.want[i], tc.want[i+1])
			}
		}
		var c meshconfig.ProxyConfig
		bundle := g.Set(agent.ProxyConfigType, &sc)
		if err := bundle.Get(agent.ProxyConfigName).Any().UnmarshalTo(&c); err != nil ||
			c.ProxyMetadata[resource.BypassedPorts] != tc.ports {
			t.Errorf("%s: the agent is told of %q, want %q; error %v", name, c.ProxyMetadata[resource.BypassedPorts], tc.ports,
				err)
		}
	}
}
