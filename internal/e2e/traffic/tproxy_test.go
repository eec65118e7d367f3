package traffic

import (
	"fmt"
	"os"
	"testing"

	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Two machines with the agent's own rules: HTTP and TCP by virtual IPs of both IP versions through
// both proxies, a service that is also on the client's machine, and unknown destinations. Needs
// root for network namespaces.
func TestTProxy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	here, there := harness.Linked(t)
	here.Command("ip", "address", "add", "fd99::1/64", "dev", "eth0", "nodad")
	there.Command("ip", "address", "add", "fd99::2/64", "dev", "eth0", "nodad")
	here.Command("ip", "route", "add", "default", "via", "fd99::2")
	there.Backend(t, "web", ":8080")
	there.TCPEcho(t, "db", ":7000")
	there.TCPEcho(t, "stranger", ":7002")
	here.TCPEcho(t, "local", here.IP+":7001")
	m := harness.New(t, nil, harness.In(here))
	there.Forward(m.XDS(), here)
	m.Write("services.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web}
spec:
  hosts: [web.test]
  addresses: [240.1.0.1, "2001:db8::1"]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, targetPort: 8080}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db}
spec:
  hosts: [db.test]
  addresses: [240.1.0.2, "2001:db8::2"]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 5432, name: tcp, targetPort: 7000}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: local}
spec:
  hosts: [local.test]
  addresses: [240.1.0.3]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 5432, name: tcp, targetPort: 7001}]
  endpoints: [{address: %[2]s}]
`, there.IP, here.IP))
	client := m.Proxy(harness.Workload{Name: "client", Redirected: here, TProxy: true})
	server := m.Proxy(harness.Workload{Name: "server", Redirected: there, TProxy: true})
	rules, err := intercept.Config{Settings: intercept.Default(), User: harness.TProxyUser,
		Group: harness.TProxyUser}.Render()
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*harness.Namespace{here, there} {
		// Envoy listens there already: the address comes with the rules.
		ns.Command("ip", "address", "add", intercept.Address6+"/128", "dev", "lo", "nodad")
		ns.NFT(rules)
	}

	here.Client(t, "240.1.0.1:80").Want(t, "HTTP by IPv4", harness.Request{Host: "web.test"}, harness.From("web"))
	here.Client(t, "[2001:db8::1]:80").Want(t, "HTTP by IPv6", harness.Request{Host: "web.test"}, harness.From("web"))
	for _, tc := range []struct{ what, address, name, first string }{
		{"TCP by IPv4", "240.1.0.2:5432", "db", ""},
		{"TCP by IPv6", "[2001:db8::2]:5432", "db", ""},
		{"a service of this machine", "240.1.0.3:5432", "local", ""},
		{"an address that no service has", there.IP + ":7002", "stranger", "hello\n"},
		{"an address that no service has, IPv6", "[fd99::2]:7002", "stranger", "hello\n"},
	} {
		harness.Eventually(t, tc.what, func() error { return greetsFrom(here, tc.address, tc.name, tc.first) })
	}
	for p, stats := range map[*harness.Proxy]map[string]int{
		client: {
			"cluster.outbound|80||web.test;.upstream_rq_completed": 2, "cluster.outbound|5432||db.test;.upstream_cx_total": 2,
			"cluster.outbound|5432||local.test;.upstream_cx_total": 1, "cluster.inbound|7001||;.upstream_cx_total": 1,
			"cluster.PassthroughCluster.upstream_cx_total": 2,
		},
		server: {
			"cluster.inbound|8080||;.upstream_rq_completed": 2, "cluster.inbound|7000||;.upstream_cx_total": 2,
			"cluster.InboundPassthroughCluster.upstream_cx_total": 2,
		},
	} {
		for s, want := range stats {
			if got := p.Stat(s); got < want {
				t.Errorf("%s is %d, want %d at least: the traffic went another way", s, got, want)
			}
		}
	}
}
