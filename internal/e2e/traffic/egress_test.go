package traffic

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// egress are ServiceEntries without addresses. Their target ports are open; the ports that clients
// call are not, so that a connection that passes the proxy's services by is refused.
const egress = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a-plain}
spec:
  hosts: [www.partner.test]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b-secure}
spec:
  hosts: [www.partner.test]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 443, name: tls, protocol: TLS, targetPort: 8443}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other}
spec:
  hosts: [other.partner.test]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 443, name: tls, protocol: TLS, targetPort: 9443}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db}
spec:
  hosts: [db.partner.test]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 5432, name: tcp, protocol: TCP, targetPort: 7000}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: lan}
spec:
  hosts: [lan.partner.test]
  addresses: [10.99.0.0/16]
  location: MESH_EXTERNAL
  resolution: NONE
  ports: [{number: 6000, name: tcp, protocol: TCP, targetPort: 7001}]
`

// Clients that resolved real addresses, which the proxy does not know, reach services outside of
// the mesh: HTTP by host, TLS by SNI and TCP by port. Two ServiceEntries of one host have their own
// ports, and one of resolution NONE changes the port. Needs root for network namespaces.
func TestEgress(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	here, there := harness.Linked(t)
	ca := harness.NewCA(t)
	there.Backend(t, "plain", there.IP+":8080")
	there.TCPEcho(t, "db", there.IP+":7000")
	there.TCPEcho(t, "lan", there.IP+":7001")
	for host, address := range map[string]string{"www.partner.test": there.IP + ":8443",
		"other.partner.test": there.IP + ":9443"} {
		cert, key := ca.Issue(t, host)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		l := there.Listen(t, address)
		harness.ServeEcho(t, host, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}))
	}
	m := harness.New(t, nil, harness.In(here))
	m.Write("egress.yaml", fmt.Sprintf(egress, there.IP))
	here.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	client := m.Proxy(harness.Workload{Name: "client", Redirected: here})

	harness.Eventually(t, "TCP by port", func() error { return greetsFrom(here, there.IP+":5432", "db", "") })
	for range 12 {
		here.Client(t, there.IP+":80").Fresh().Want(t, "plaintext", harness.Request{Host: "www.partner.test"},
			harness.From("plain"))
	}
	for _, host := range []string{"www.partner.test", "other.partner.test"} {
		harness.Eventually(t, "TLS to "+host, func() error { return greetsByTLS(here, ca, there.IP+":443", host) })
	}
	harness.Eventually(t, "another port", func() error { return greetsFrom(here, there.IP+":6000", "lan", "") })
	for _, s := range []string{
		"cluster.outbound|80||www.partner.test;.upstream_rq_completed", "cluster.outbound|443||www.partner.test;.upstream_cx_total",
		"cluster.outbound|443||other.partner.test;.upstream_cx_total", "cluster.outbound|5432||db.partner.test;.upstream_cx_total",
		"cluster.outbound|6000||lan.partner.test;.upstream_cx_total",
	} {
		if client.Stat(s) == 0 {
			t.Errorf("%s is 0: the traffic went another way", s)
		}
	}
}

// greetsByTLS reads the greeting of a server that proves to be host.
func greetsByTLS(ns *harness.Namespace, ca *harness.CA, address, host string) error {
	c, err := ns.Dial(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	secure := tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots, MinVersion: tls.VersionTLS12})
	got, err := bufio.NewReader(secure).ReadString('\n')
	if err != nil || got != host+"\n" {
		return fmt.Errorf("greeting %q, %v, want %q", got, err, host)
	}
	return nil
}
