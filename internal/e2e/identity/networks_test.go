package identity

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// gatewayOf is the group of the gateway of a network.
func gatewayOf(network string) string {
	return strings.ReplaceAll(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: gateway-NETWORK, namespace: shop}
spec:
  metadata: {labels: {app: gateway}}
  template: {serviceAccount: gateway, network: NETWORK}
`, "NETWORK", network)
}

// eastWest is what gateways forward to, and a service of the workloads of both networks.
const eastWest = `---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: east-west, namespace: shop}
spec:
  selector: {app: gateway}
  servers:
  - port: {number: 15443, name: tls, protocol: TLS}
    hosts: ["*.test"]
    tls: {mode: AUTO_PASSTHROUGH}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: both, namespace: shop}
spec:
  hosts: [both.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {tier: web}}
`

// site is one of two networks: a machine that has the loopback addresses that the other one has, too.
type site struct {
	name                 string
	ns                   *harness.Namespace
	gateway, web, client *harness.Proxy
}

// join has the gateway, the web and the client of a network join. Each says by other means in which
// network it is.
func (s *site) join(t *testing.T, m *harness.Mesh) {
	t.Helper()
	s.ns.Backend(t, s.name, fmt.Sprintf("127.0.0.21:%d", httpAppPort))
	s.gateway = m.Join(harness.Workload{Name: "gateway-" + s.name, Group: "shop/gateway-" + s.name, Router: true,
		IP: "127.0.0.20", Within: s.ns})
	s.web = m.Join(harness.Workload{Name: s.name, Group: "shop/" + s.name, IP: "127.0.0.21", Within: s.ns,
		Labels: "tier=web", Flags: []string{"--set", "workload.network=" + s.name}})
	s.client = m.Join(harness.Workload{Name: "a-" + s.name, Group: "shop/a", IP: "127.0.0.22", Within: s.ns,
		Labels: "topology.istio.io/network=" + s.name})
}

// calls makes calls to a host, each on a connection of its own, until check accepts one answer.
func (s *site) calls(t *testing.T, host string, check func(harness.Answer) error) {
	t.Helper()
	s.ns.Client(t, fmt.Sprintf("%s:%d", s.client.IP, httpPort)).Fresh().Want(t, s.name+" calls "+host,
		harness.Request{Host: host}, check)
}

// Two networks with the same addresses reach one another only through their gateways. Calls both ways
// have mutual TLS between client and workload, whose policies see the client. Needs root for network
// namespaces.
func TestNetworks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	one, other := harness.Linked(t)
	east, west := &site{name: "east", ns: one}, &site{name: "west", ns: other}
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	text := fmt.Sprintf("networks: {east: {gateways: [{address: %s}]}, west: {gateways: [{address: %s}]}}\n",
		one.IP, other.IP)
	if err := os.WriteFile(networks, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	allow := func(account string) string {
		return policy("callers", fmt.Sprintf(
			"{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/%s]}}]}]}", account))
	}
	m := harness.New(t, map[string]string{
		"east.yaml": service("east") + gatewayOf("east"), "west.yaml": service("west") + gatewayOf("west"),
		"both.yaml": eastWest, "a.yaml": group("a"), "mode.yaml": mode("STRICT"), "policy.yaml": allow("a"),
	}, harness.In(one), harness.Secure("meshNetworks: "+networks))
	other.Forward(m.TLS(), one)
	east.join(t, m)
	west.join(t, m)

	east.calls(t, "west.test", proven("west"))
	west.calls(t, "east.test", proven("east"))
	for _, s := range []*site{east, west} {
		s.calls(t, s.name+".test", proven(s.name))
		s.calls(t, "both.test", proven("east"))
		s.calls(t, "both.test", proven("west"))
		if stat := fmt.Sprintf("cluster.outbound_.8080_._.%s.test;.upstream_cx_total", s.name); s.gateway.Stat(stat) == 0 {
			t.Errorf("the gateway of %s forwarded no connection: %s is 0", s.name, stat)
		}
	}
	m.Write("policy.yaml", allow("nobody"))
	east.calls(t, "west.test", harness.Status(http.StatusForbidden))
	west.calls(t, "east.test", harness.Status(http.StatusForbidden))
}
