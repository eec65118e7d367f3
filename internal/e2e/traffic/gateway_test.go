package traffic

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// gatewayYAML is a Gateway for routers labelled app=gateway with the servers given as YAML; they
// are bound to the address ip, where without it they would take all addresses of the machine.
func gatewayYAML(ip, servers string) string {
	servers = strings.ReplaceAll(servers, "hosts:", "bind: "+ip+", hosts:")
	servers = strings.ReplaceAll(servers, "\n    bind: "+ip+", hosts:", "\n    bind: "+ip+"\n    hosts:")
	return `---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  selector: {app: gateway}
  servers:
` + strings.Trim(servers, "\n") + "\n"
}

// gatewayRoute is a VirtualService on that Gateway.
func gatewayRoute(host, http string) string {
	return strings.Replace(routes(host, http), "spec:\n", "spec:\n  gateways: [gw]\n", 1)
}

// gateway starts a router at ip.
func gateway(m *harness.Mesh, ip string) *harness.Proxy {
	return m.Proxy(harness.Workload{Name: "gateway", IP: ip, Labels: "app=gateway", Router: true})
}

// HTTP at a gateway: hosts of several servers on one port, an unknown host, a redirect to HTTPS.
func TestGatewayHTTP(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	ip := m.IP()
	m.Write("gw.yaml", service("web.test", at(v1), at(v2))+subsets("web.test", "")+
		gatewayYAML(ip, `
  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: [one.test, "*.two.test"]}
  - {port: {number: 9081, name: http-redirect, protocol: HTTP}, hosts: ["*"], tls: {httpsRedirect: true}}
`)+
		gatewayRoute("one.test", "  - match: [{uri: {prefix: /v2}}]\n    route: [{destination: {host: web.test, subset: v2}}]\n  - route: [{destination: {host: web.test, subset: v1}}]\n")+
		gatewayRoute("a.two.test", "  - route: [{destination: {host: web.test, subset: v2}}]\n")+
		gatewayRoute("three.test", "  - route: [{destination: {host: web.test, subset: v2}}]\n"))
	p := gateway(m, ip)
	client := p.Client(9080)
	client.Want(t, "the first host", harness.Request{Host: "one.test"}, harness.From("v1"))
	client.Want(t, "its second route", harness.Request{Host: "one.test", Path: "/v2"}, harness.From("v2"))
	client.Want(t, "a host under a wildcard", harness.Request{Host: "a.two.test"}, harness.From("v2"))
	client.Want(t, "a host that no server has", harness.Request{Host: "three.test"}, harness.Status(404))
	client.Want(t, "a host that no route has", harness.Request{Host: "b.two.test"}, harness.Status(404))
	p.Client(9081).Want(t, "redirected to HTTPS", harness.Request{Host: "one.test", Path: "/x"},
		all(harness.Status(301), answerHeader("Location", "https://one.test/x")))
}

// A gateway listens where its own service maps a server's port, and follows when the service
// changes.
func TestGatewayListensAtTargetPort(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1 := backend(t, m, "v1")
	ip := m.IP()
	own := func(target int) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: gateway}
spec:
  hosts: [gateway.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9080, targetPort: %d, name: http}]
  endpoints: [{address: %s}]
`, target, ip)
	}
	m.Write("gw.yaml", service("web.test", at(v1))+
		gatewayYAML(ip, "  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: [one.test]}\n")+
		gatewayRoute("one.test", "  - route: [{destination: {host: web.test}}]\n"))
	m.Write("own.yaml", own(19080))
	p := gateway(m, ip)
	p.Client(19080).Want(t, "the target port", harness.Request{Host: "one.test"}, harness.From("v1"))
	if conn, err := net.Dial("tcp", ip+":9080"); err == nil {
		conn.Close()
		t.Error("the gateway listens on the port of its service too")
	}
	m.Write("own.yaml", own(19081))
	p.Client(19081).Want(t, "another target port", harness.Request{Host: "one.test"}, harness.From("v1"))
	m.Remove("own.yaml")
	p.Client(9080).Want(t, "no service", harness.Request{Host: "one.test"}, harness.From("v1"))
}

// HTTPS at a gateway with a certificate from files, and TLS that passes through by SNI to a server
// that has its own certificate.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, ip := backend(t, m, "v1"), m.IP()
	ca := harness.NewCA(t)
	dir := t.TempDir()
	cert, key := ca.Issue(t, "one.test")
	certFile, keyFile := writeFile(t, dir, "cert.pem", cert), writeFile(t, dir, "key.pem", key)
	passCert, passKey := ca.Issue(t, "pass.test")
	inner, _, _ := strings.Cut(tlsServer(t, m.IP()+":8443", passCert, passKey), ":")
	m.Write("gw.yaml", service("web.test", at(v1))+fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pass}
spec:
  hosts: [pass.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8443, name: tls, protocol: TLS}]
  endpoints: [{address: %s}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: pass}
spec:
  hosts: [pass.test]
  gateways: [gw]
  tls:
  - match: [{sniHosts: [pass.test]}]
    route: [{destination: {host: pass.test, port: {number: 8443}}}]
`, inner)+gatewayYAML(ip, fmt.Sprintf(`
  - port: {number: 9443, name: https, protocol: HTTPS}
    hosts: [one.test]
    tls: {mode: SIMPLE, serverCertificate: %s, privateKey: %s}
  - port: {number: 9443, name: pass, protocol: TLS}
    hosts: [pass.test]
    tls: {mode: PASSTHROUGH}
`, certFile, keyFile))+gatewayRoute("one.test", "  - route: [{destination: {host: web.test}}]\n"))
	p := gateway(m, ip)
	get := func(host string) (string, *x509.Certificate, error) {
		transport := &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: host}}
		req, _ := http.NewRequest(http.MethodGet, "https://"+p.IP+":9443/", nil)
		req.Host = host
		resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
		if err != nil {
			return "", nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return "", nil, fmt.Errorf("status %d", resp.StatusCode)
		}
		return resp.Header.Get("x-backend"), resp.TLS.PeerCertificates[0], nil
	}
	wantTLS := func(host, backend string) *x509.Certificate {
		var leaf *x509.Certificate
		harness.Eventually(t, "https "+host, func() error {
			got, c, err := get(host)
			if err == nil && got != backend {
				err = fmt.Errorf("answered by %q, want %q", got, backend)
			}
			leaf = c
			return err
		})
		return leaf
	}
	first := wantTLS("one.test", "v1")
	wantTLS("pass.test", "inner")

	// a renewed certificate on disk is picked up without a change of configuration
	cert, key = ca.Issue(t, "one.test")
	writeFile(t, dir, "key.pem", key)
	writeFile(t, dir, "cert.pem", cert)
	harness.Eventually(t, "the renewed certificate is presented", func() error {
		_, c, err := get("one.test")
		if err == nil && c.SerialNumber.Cmp(first.SerialNumber) == 0 {
			err = fmt.Errorf("still the first one")
		}
		return err
	})
}

// TCP at a gateway.
func TestGatewayTCP(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	addr := harness.TCPEcho(t, "tcp-one", m.IP()+":7000").(*net.TCPAddr)
	ip := m.IP()
	m.Write("gw.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: tcp}
spec:
  hosts: [tcp.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 7000, name: tcp}]
  endpoints: [{address: %s}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tcp}
spec:
  hosts: ["*"]
  gateways: [gw]
  tcp:
  - match: [{port: 9700}]
    route: [{destination: {host: tcp.test, port: {number: 7000}}}]
`, addr.IP)+gatewayYAML(ip, "  - {port: {number: 9700, name: tcp, protocol: TCP}, hosts: ['*']}\n"))
	p := gateway(m, ip)
	harness.Eventually(t, "TCP through the gateway", func() error { return greets(p.IP+":9700", "tcp-one") })
}

// greets connects, reads the greeting of a TCPEcho and has a line echoed.
func greets(address, name string) error {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReader(c)
	if got, err := r.ReadString('\n'); err != nil || got != name+"\n" {
		return fmt.Errorf("greeting %q, %v, want %q", got, err, name)
	}
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return err
	}
	if got, err := r.ReadString('\n'); err != nil || got != "hello\n" {
		return fmt.Errorf("echo %q, %v", got, err)
	}
	return nil
}

// writeFile replaces a file by rename.
func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// tlsServer is an HTTPS server that answers as backend "inner". It returns its address.
func tlsServer(t *testing.T, address string, cert, key []byte) string {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	harness.ServeHTTP(t, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-backend", "inner")
	}))
	return l.Addr().String()
}

// Certificates that Envoy cannot use are shown, each with its words, and cost the others nothing.
func TestGatewayBadCertificates(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, ip := backend(t, m, "v1"), m.IP()
	ca, dir := harness.NewCA(t), t.TempDir()
	cert, key := ca.Issue(t, "good.test")
	_, otherKey := ca.Issue(t, "other.test")
	good, goodKey, wrongKey := writeFile(t, dir, "cert.pem", cert), writeFile(t, dir, "key.pem", key), writeFile(t, dir,
		"other.pem", otherKey)
	missing := filepath.Join(dir, "missing.pem")
	server := func(name, cert, key string) string {
		return fmt.Sprintf("  - port: {number: 9443, name: %s, protocol: HTTPS}\n    hosts: [%s.test]\n    tls: {mode: SIMPLE, serverCertificate: %s, privateKey: %s}\n", name, name, cert, key)
	}
	write := func(forWrong string) {
		m.Write("gw.yaml", service("web.test", at(v1))+gatewayYAML(ip,
			"\n"+server("good", good, goodKey)+server("gone", missing, goodKey)+server("wrong", good, forWrong))+
			gatewayRoute("\"*.test\"", "  - route: [{destination: {host: web.test}}]\n"))
	}
	write(wrongKey)
	gateway(m, ip)
	answers := func(host string) error {
		transport := &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host}}
		resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("https://" + ip + ":9443/")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	refused := func() (words []string, err error) {
		status, err := admin.Send(t.Context(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil {
			return nil, err
		}
		for _, proxy := range status.Proxies {
			for _, typ := range proxy.Types {
				for _, r := range typ.Rejected {
					words = append(words, r.Resource+": "+r.Error)
				}
			}
		}
		return words, nil
	}
	harness.Eventually(t, "both refusals are shown", func() error {
		words, err := refused()
		if all := strings.Join(words, "\n"); len(words) != 2 || !strings.Contains(all, missing) ||
			!strings.Contains(all, wrongKey) {
			return errors.Join(err, fmt.Errorf("shown is %q", words))
		}
		return nil
	})
	harness.Eventually(t, "https good.test", func() error { return answers("good.test") })
	write(goodKey)
	harness.Eventually(t, "the repaired one is served, the other one still shown", func() error {
		words, err := refused()
		if len(words) != 1 || !strings.Contains(words[0], missing) {
			return errors.Join(err, fmt.Errorf("shown is %q", words))
		}
		return answers("wrong.test")
	})
}
