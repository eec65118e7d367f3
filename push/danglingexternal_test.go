package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// A service whose workloads have identities that nobody asks for is told of.
func TestDanglingExternal(t *testing.T) {
	t.Parallel()
	entry := func(location, account string) string {
		return yamlOf(config.ServiceEntry, "shop/web", "hosts: [web.shop.internal], ports: [{number: 80, name: http}], resolution: STATIC, "+location+
			"endpoints: [{address: 10.0.0.1"+account+"}]")
	}
	const account = ", serviceAccount: web"
	checkDangling(t, []danglingCase{
		{"inside", []string{entry("location: MESH_INTERNAL, ", account)}, nil},
		{"without identity", []string{entry("", "")}, nil},
		{
			"outside by default", []string{entry("", account)},
			[]string{"mesh.yaml:1: ServiceEntry shop/web spec.location: workloads of web.shop.internal take the mesh's mutual TLS, but clients speak plaintext to them"},
		},
		{"outside", []string{entry("location: MESH_EXTERNAL, ", account)}, []string{"write location: MESH_INTERNAL"}},
		{"a rule says how", []string{entry("", account), ruleOf("shop/web", "host: web.shop.internal, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}")}, nil},
		{"a rule that does not", []string{entry("", account), ruleOf("shop/web", "host: web.shop.internal, trafficPolicy: {loadBalancer: {simple: RANDOM}}")}, []string{"write location"}},
	})
}
