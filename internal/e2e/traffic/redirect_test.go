package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// redirect sends what applications call to the proxy's outbound port, and what arrives to its
// inbound port. The proxy's own traffic and that to loopback addresses stay.
const redirect = `
table inet ashore {
	chain output {
		type nat hook output priority -100;
		meta skgid %d accept
		ip daddr 127.0.0.0/8 accept
		meta l4proto tcp redirect to :15001
	}
	chain prerouting {
		type nat hook prerouting priority -100;
		meta l4proto tcp redirect to :15006
	}
}
`

// Two machines whose traffic is redirected: HTTP and TCP by virtual IP, through the client's proxy
// and the server's, and what no service knows passes through. Needs root for network namespaces.
func TestRedirected(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	here, there := harness.Linked(t)
	web := there.Backend(t, "web", there.IP+":8080")
	there.TCPEcho(t, "db", there.IP+":7000")
	there.TCPEcho(t, "sniffed", there.IP+":7001")
	there.TCPEcho(t, "stranger", there.IP+":7002")
	m := harness.New(t, nil, harness.In(here))
	there.Forward(m.XDS(), here)
	m.Write("services.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web}
spec:
  hosts: [web.test]
  addresses: [240.1.0.1]
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
  addresses: [240.1.0.2]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 5432, name: tcp, targetPort: 7000}]
  endpoints: [{address: %[1]s}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: sniffed}
spec:
  hosts: [sniffed.test]
  addresses: [240.1.0.3]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 90, name: any, targetPort: 8080}, {number: 91, name: any-tcp, targetPort: 7001}]
  endpoints: [{address: %[1]s}]
`, there.IP))
	for _, ns := range []*harness.Namespace{here, there} {
		ns.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	}
	client := m.Proxy(harness.Workload{Name: "client", Redirected: here})
	server := m.Proxy(harness.Workload{Name: "server", Redirected: there})

	here.Client(t, "240.1.0.1:80").Want(t, "HTTP by virtual IP", harness.Request{Host: "web.test"}, harness.From("web"))
	here.Client(t, "240.1.0.3:90").Want(t, "HTTP on a sniffed port", harness.Request{Host: "sniffed.test:90"},
		harness.From("web"))
	harness.Eventually(t, "TCP by virtual IP", func() error { return greetsFrom(here, "240.1.0.2:5432", "db", "") })
	harness.Eventually(t, "TCP on a sniffed port", func() error {
		return greetsFrom(here, "240.1.0.3:91", "sniffed",
			"hello\n")
	})
	// the server's proxy finds out what an undeclared port speaks from what the client says first
	harness.Eventually(t, "an address that no service has",
		func() error { return greetsFrom(here, there.IP+":7002", "stranger", "hello\n") })

	if web.Requests() == 0 {
		t.Error("the backend saw nothing")
	}
	for p, stats := range map[*harness.Proxy][]string{
		client: {"cluster.outbound|80||web.test;.upstream_rq_completed",
			"cluster.outbound|5432||db.test;.upstream_cx_total", "cluster.PassthroughCluster.upstream_cx_total"},
		server: {"cluster.inbound|8080||;.upstream_rq_completed", "cluster.inbound|7000||;.upstream_cx_total"},
	} {
		for _, s := range stats {
			if p.Stat(s) == 0 {
				t.Errorf("%s is 0: the traffic went another way", s)
			}
		}
	}
}

// greetsFrom connects from within a network namespace, says something first if it is not empty, and
// reads the greeting of a TCPEcho.
func greetsFrom(ns *harness.Namespace, address, name, first string) error {
	c, err := ns.Dial(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, first); err != nil {
		return err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || got != name+"\n" {
		return fmt.Errorf("greeting %q, %v, want %q", got, err, name)
	}
	return nil
}
