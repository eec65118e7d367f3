package traffic

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// fromOne allows requests from one client at gateways with that label.
const fromOne = `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: one}
spec:
  selector: {matchLabels: {app: gateway}}
  rules: [{from: [{source: {remoteIpBlocks: [203.0.113.7]}}]}]
`

// A gateway behind a trusted proxy believes what that proxy wrote: the client's address, to policies
// too, and its certificate. The settings of the mesh hold for TLS and headers.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil, harness.Further(`mesh:
  tlsDefaults: {minProtocolVersion: TLSV1_3}
  defaultConfig:
    gatewayTopology: {numTrustedProxies: 1, forwardClientCertDetails: ALWAYS_FORWARD_ONLY}
    proxyHeaders: {server: {disabled: true}, attemptCount: {disabled: true}, envoyDebugHeaders: {disabled: true}}`))
	v1, ip := backend(t, m, "v1"), m.IP()
	ca, dir := harness.NewCA(t), t.TempDir()
	cert, key := ca.Issue(t, "one.test")
	m.Write("gw.yaml", service("web.test", at(v1))+gatewayYAML(ip, fmt.Sprintf(`
  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: [one.test]}
  - port: {number: 9443, name: https, protocol: HTTPS}
    hosts: [one.test]
    tls: {mode: SIMPLE, serverCertificate: %s, privateKey: %s}
`, writeFile(t, dir, "cert.pem", cert), writeFile(t, dir, "key.pem", key)))+
		gatewayRoute("one.test", "  - route: [{destination: {host: web.test}}]\n")+
		fromOne)
	p := gateway(m, ip)
	client := p.Client(9080)
	request := func(forwarded string) harness.Request {
		return harness.Request{Host: "one.test", Header: map[string]string{"x-forwarded-for": forwarded,
			"x-forwarded-client-cert": "Hash=abc"}}
	}
	client.Want(t, "the client that the proxy names", request("203.0.113.7"), func(a harness.Answer) error {
		seen := a.Seen.Header
		for what, ok := range map[string]bool{
			"the certificate is lost":     seen.Get("X-Forwarded-Client-Cert") == "Hash=abc",
			"attempts are counted":        seen.Get("X-Envoy-Attempt-Count") == "",
			"the server has a name":       a.Header.Get("Server") == "",
			"Envoy says how long it took": a.Header.Get("X-Envoy-Upstream-Service-Time") == "",
		} {
			if !ok {
				return fmt.Errorf("%s: status %d, request %v, answer %v", what, a.Status, seen, a.Header)
			}
		}
		return harness.From("v1")(a)
	})
	client.Want(t, "another client", request("203.0.113.7, 198.51.100.1"), harness.Status(403))
	client.Want(t, "no proxy", harness.Request{Host: "one.test"}, harness.Status(403))

	for version, want := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		config := &tls.Config{RootCAs: ca.Pool, ServerName: "one.test", MinVersion: version, MaxVersion: version}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", ip+":9443", config)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v, want success %t", tls.VersionName(version), err, want)
		}
	}
}

// An annotation of its group makes a gateway read the PROXY protocol: policies see the client that it
// names, and other connections are closed. The agent starts Envoy with what the annotation sets.
func TestProxyProtocolOfGroup(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil, harness.Secure(""))
	v1, ip := backend(t, m, "v1"), m.IP()
	m.Write("gw.yaml", `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: gateway
  annotations: {proxy.istio.io/config: "{gatewayTopology: {proxyProtocol: {}}, concurrency: 3}"}
spec: {metadata: {labels: {app: gateway}}, template: {}}
---
`+service("web.test", at(v1))+
		gatewayYAML(ip, "  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: [one.test]}\n")+
		gatewayRoute("one.test", "  - route: [{destination: {host: web.test}}]\n")+fromOne)
	p := m.Join(harness.Workload{Name: "gateway", Group: "default/gateway", IP: ip, Router: true})
	// get sends a request after a line of the PROXY protocol.
	get := func(line string) (status int, backend string, err error) {
		conn, err := net.DialTimeout("tcp", ip+":9080", 5*time.Second)
		if err != nil {
			return 0, "", err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(conn, "%sGET / HTTP/1.1\r\nhost: one.test\r\nconnection: close\r\n\r\n", line)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		var seen harness.Seen
		if resp.StatusCode == http.StatusOK {
			err = json.NewDecoder(resp.Body).Decode(&seen)
		}
		return resp.StatusCode, seen.Backend, err
	}
	harness.Eventually(t, "the client that the protocol names", func() error {
		if status, from, err := get("PROXY TCP4 203.0.113.7 127.0.0.1 5000 80\r\n"); err != nil || from != "v1" {
			return fmt.Errorf("status %d, %v", status, err)
		}
		return nil
	})
	if status, _, err := get("PROXY TCP4 198.51.100.1 127.0.0.1 5000 80\r\n"); status != http.StatusForbidden {
		t.Errorf("another client: status %d, %v", status, err)
	}
	if status, _, err := get(""); err == nil {
		t.Errorf("without the protocol: status %d, want a closed connection", status)
	}
	p.Stop()
	p.Run()
	p.Ready()
	if n := p.Stat("server.concurrency"); n != 3 {
		t.Errorf("%d worker threads after a restart of the agent, want 3", n)
	}
}
