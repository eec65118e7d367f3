package traffic

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// TLS to a TCP service verifies the service's host by default: a certificate for it is accepted,
// one of the same authority for another host is not.
func TestTLSToTCP(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	ca := harness.NewCA(t)
	roots := writeFile(t, t.TempDir(), "ca.pem", ca.PEM())
	for i, host := range []string{"right.test", "wrong.test"} {
		ip := m.IP()
		greeter(t, ca, "right.test", ip+":7443")
		m.Write(host+".yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s}
spec:
  hosts: [%[2]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[3]d, name: tcp, targetPort: 7443}]
  endpoints: [{address: %[4]s}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s}
spec: {host: %[2]s, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: %[5]s}}}
`, strings.ReplaceAll(host, ".", "-"), host, 7001+i, ip, roots))
	}
	p := m.Proxy(harness.Workload{Name: "client"})
	harness.Eventually(t, "the right certificate", func() error { return greets(p.IP+":7001", "hello") })
	if err := greets(p.IP+":7002", "hello"); err == nil {
		t.Error("a certificate for another host was accepted")
	}
	if p.Stat("cluster.outbound|7002||wrong.test;.ssl.fail_verify_san") == 0 {
		t.Error("Envoy refused no name: the connection failed for another reason")
	}
}

// greeter is a TLS server with a certificate for host that says hello and sends back what it gets.
func greeter(t *testing.T, ca *harness.CA, host, address string) {
	t.Helper()
	cert, key := ca.Issue(t, host)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	harness.ServeEcho(t, "hello", l)
}
