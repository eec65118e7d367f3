package traffic

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// handshakes makes a TLS handshake with a server that has to prove to be host.
func handshakes(ca *harness.CA, address, host string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address,
		&tls.Config{ServerName: host, RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	return c.Close()
}

// connectProxy is an HTTP proxy that answers CONNECT, and other requests with 418.
func connectProxy(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		go func() {
			_, _ = io.Copy(to, from) // ends with the connection
			to.Close()
		}()
		_, _ = io.Copy(from, to) // likewise
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

// A DestinationRule sends connections through an HTTP proxy, but only those of the workloads that it
// selects. Another one begins connections with the PROXY protocol.
func TestTunnel(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	proxyIP, targetIP, balancerIP := m.IP(), m.IP(), m.IP()
	connectProxy(t, proxyIP+":3128")
	harness.TCPEcho(t, "target", targetIP+":7000")
	harness.TCPEcho(t, "balancer", balancerIP+":7000")
	service := func(name string, port, target int, address string) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s}
spec:
  hosts: [%[1]s.test]
  resolution: STATIC
  ports: [{number: %[2]d, name: tcp, targetPort: %[3]d}]
  endpoints: [{address: %[4]s}]
---
`, name, port, target, address)
	}
	m.Write("tunnel.yaml", service("proxy", 7001, 3128, proxyIP)+service("balancer", 7002, 7000, balancerIP)+
		fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: proxy}
spec:
  host: proxy.test
  workloadSelector: {matchLabels: {app: inside}}
  trafficPolicy: {tunnel: {targetHost: %s, targetPort: 7000}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: balancer}
spec: {host: balancer.test, trafficPolicy: {proxyProtocol: {version: V1}}}
`, targetIP))
	inside := m.Proxy(harness.Workload{Name: "inside", Labels: "app=inside"})
	outside := m.Proxy(harness.Workload{Name: "outside"})

	harness.Eventually(t, "through the tunnel", func() error { return greets(inside.IP+":7001", "target") })
	outside.Client(7001).Want(t, "to the proxy itself", harness.Request{Host: "proxy.test"}, harness.Status(418))
	harness.Eventually(t, "the PROXY protocol", func() error {
		c, err := net.DialTimeout("tcp", inside.IP+":7002", 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		r := bufio.NewReader(c)
		if _, err := r.ReadString('\n'); err != nil { // the greeting
			return err
		}
		header, err := r.ReadString('\n')
		source := c.LocalAddr().(*net.TCPAddr)
		want := fmt.Sprintf("PROXY TCP4 %s %s %d 7002", source.IP, inside.IP, source.Port)
		if err != nil || strings.TrimSpace(header) != want {
			return fmt.Errorf("the server got %q, %v, want %q", header, err, want)
		}
		return nil
	})
}
