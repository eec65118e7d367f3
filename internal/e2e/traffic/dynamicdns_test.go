package traffic

import (
	"fmt"
	"net"
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
	l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	tlsServer(t, l.Addr().String(), cert, key)
	_, plainPort, _ := net.SplitHostPort(plain.Address)
	_, securePort, _ := net.SplitHostPort(l.Addr().String())
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
