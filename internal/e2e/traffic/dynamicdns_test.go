package traffic

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// dynamic is a wildcard service whose hosts, such as a.localhost, proxies resolve as clients name
// them.
const dynamic = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild}
spec:
  hosts: ["*.localhost"]
  location: MESH_EXTERNAL
  resolution: DYNAMIC_DNS
  ports:
  - {number: %[1]d, name: http, protocol: HTTP}
  - {number: 8443, name: originated, protocol: HTTP}
  - {number: %[2]s, name: tls, protocol: TLS}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: wild}
spec:
  host: "*.localhost"
  trafficPolicy:
    portLevelSettings: [{port: {number: 8443}, tls: {mode: SIMPLE, caCertificates: %[3]s}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wild}
spec:
  hosts: ["*.localhost"]
  gateways: [gw]
  http:
  - route: [{destination: {host: "*.localhost", port: {number: %[1]d}}}]
  tls:
  - match: [{sniHosts: ["*.localhost"]}]
    route: [{destination: {host: "*.localhost"}}]
`

// Sidecars and gateways resolve the host that a request or a TLS connection names. A certificate has
// to be that host's.
func TestDynamicDNS(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	ca := harness.NewCA(t)
	plain := harness.NewBackend(t, "plain", "127.0.0.1:0")
	cert, key := ca.Issue(t, "a.localhost")
	_, plainPort, _ := net.SplitHostPort(plain.Address)
	_, securePort, _ := net.SplitHostPort(tlsServer(t, "127.0.0.1:0", cert, key))
	gatewayIP := m.IP()
	m.Write("wild.yaml", fmt.Sprintf(dynamic, port, securePort, writeFile(t, t.TempDir(), "ca.pem", ca.PEM()))+
		gatewayYAML(gatewayIP, strings.ReplaceAll(`
  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: ["*.localhost"]}
  - {port: {number: PORT, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ["*.localhost"]}
`, "PORT", securePort)))
	p := m.Proxy(harness.Workload{Name: "client"})
	gw := gateway(m, gatewayIP)

	for name, client := range map[string]*harness.Client{"sidecar": p.Client(port), "gateway": gw.Client(9080)} {
		client.Want(t, name+": by Host", harness.Request{Host: "b.localhost:" + plainPort}, harness.From("plain"))
	}
	originate := p.Client(8443)
	originate.Want(t, "TLS to the host", harness.Request{Host: "a.localhost:" + securePort}, harness.Status(200))
	originate.Want(t, "a certificate of another host", harness.Request{Host: "b.localhost:" + securePort},
		harness.Status(503))
	for name, ip := range map[string]string{"sidecar": p.IP, "gateway": gatewayIP} {
		harness.Eventually(t, name+": by SNI", func() error {
			return handshakes(ca, net.JoinHostPort(ip, securePort), "a.localhost")
		})
	}
	for _, s := range []string{
		fmt.Sprintf("cluster.outbound|%d||*.localhost;.upstream_rq_completed", port),
		"cluster.outbound|" + securePort + "||*.localhost;.upstream_cx_total",
	} {
		if p.Stat(s) == 0 || gw.Stat(s) == 0 {
			t.Errorf("%s is 0: the traffic went another way", s)
		}
	}
}

// unknownHosts is the start of settings of a mesh in which proxies resolve unknown hosts.
const unknownHosts = "mesh:\n  outboundTrafficPolicy:\n    mode: ALLOW_ANY_DYNAMIC_DNS\n"

// Requests for unknown hosts go to the hosts that they name, at whatever address the client connected
// to. Other connections go to that address. No server of a declared service is kept waiting that
// speaks first. Needs root for network namespaces.
func TestUnknownHosts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	here, there := harness.Linked(t)
	here.Backend(t, "named", "127.0.0.1:8080") // a.localhost
	there.TCPEcho(t, "db", there.IP+":7000")
	there.TCPEcho(t, "stranger", there.IP+":7002")
	m := harness.New(t, nil, harness.In(here), harness.Further(unknownHosts))
	here.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	p := m.Proxy(harness.Workload{Name: "client", Redirected: here})

	here.Client(t, there.IP+":80").Want(t, "by Host", harness.Request{Host: "a.localhost:8080"}, harness.From("named"))
	m.Write("db.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db}
spec:
  hosts: [db.test]
  addresses: [240.1.0.2]
  resolution: STATIC
  ports: [{number: 5432, name: tcp, targetPort: 7000}]
  endpoints: [{address: %s}]
`, there.IP))
	harness.Eventually(t, "TCP of a service", func() error { return greetsFrom(here, "240.1.0.2:5432", "db", "") })
	harness.Eventually(t, "TCP to an address", func() error {
		return greetsFrom(here, there.IP+":7002", "stranger", "hello\n")
	})
	for _, s := range []string{"AllowAnyDynamicDNSCluster;.upstream_rq_completed", "PassthroughCluster.upstream_cx_total"} {
		if p.Stat("cluster."+s) == 0 {
			t.Errorf("%s is 0: the traffic went another way", s)
		}
	}
}

// Requests for unknown hosts go out by TLS if the mesh says so. The certificate has to be that host's.
// A port that the proxy opens for services resolves no hosts: the proxy would connect to itself.
func TestUnknownHostsByTLS(t *testing.T) {
	t.Parallel()
	ca := harness.NewCA(t)
	cert, key := ca.Issue(t, "a.localhost")
	_, secure, _ := net.SplitHostPort(tlsServer(t, "127.0.0.1:0", cert, key))
	m := harness.New(t, nil, harness.Further(unknownHosts+fmt.Sprintf(
		"    tls: {mode: SIMPLE, caCertificates: %s}\n  proxyHttpPort: 15080\n", writeFile(t, t.TempDir(), "ca.pem", ca.PEM()))))
	m.Write("known.yaml", `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: known}
spec:
  hosts: [known.test]
  resolution: STATIC
  ports: [{number: 8081, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`)
	p := m.Proxy(harness.Workload{Name: "client"})
	p.Client(8081).Want(t, "the host is the port itself", harness.Request{Host: p.IP + ":8081"}, harness.Status(503))
	if p.Stat("cluster.AllowAnyDynamicDNSCluster;.upstream_cx_total") > 0 {
		t.Error("the proxy connected to itself")
	}
	client := p.Client(15080)
	client.Want(t, "TLS to the host", harness.Request{Host: "a.localhost:" + secure}, harness.Status(200))
	client.Want(t, "a certificate of another host", harness.Request{Host: "b.localhost:" + secure}, harness.Status(503))
}
