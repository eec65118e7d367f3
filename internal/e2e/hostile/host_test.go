package hostile

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// A host that a policy denies is not reached by naming two hosts, nor by writing it in another way.
func TestDeniedHostIsNotReached(t *testing.T) {
	t.Parallel()
	const files = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: edge, namespace: shop}
spec: {metadata: {labels: {app: edge}}, template: {serviceAccount: edge}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http}]
  workloadSelector: {labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, bind: EDGE, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: ["*"], gateways: [edge], http: [{route: [{destination: {host: web.test}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {hosts: [admin.test]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny-others, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {notHosts: [web.test, "web.test:*", admin.test], paths: [/strict]}}]}]}
`
	m := harness.New(t, nil, harness.Secure(""))
	ip, edge := m.IP(), m.IP()
	m.Write("mesh.yaml", strings.ReplaceAll(files, "EDGE", edge))
	backend := harness.NewBackend(t, "web", ip+":18080")
	web := m.Join(harness.Workload{Name: "web", Group: "shop/web", IP: ip})
	gateway := m.Join(harness.Workload{Name: "edge", Group: "shop/edge", IP: edge, Router: true})
	certificate, err := harness.LoadIdentity(gateway.State)
	if err != nil {
		t.Fatal(err)
	}
	web.Client(8080).Want(t, "the sidecar answers", harness.Request{Host: "web.test"}, harness.From("web"))
	gateway.Client(8080).Want(t, "the gateway answers", harness.Request{Host: "web.test"}, harness.From("web"))

	mutual := func(protocol string) *tls.Config {
		return &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"istio", protocol},
			Certificates: []tls.Certificate{certificate.Certificate},
		}
	}
	for door, at := range map[string]hostDoor{
		"sidecar, plaintext":  {ip + ":8080", nil, nil},
		"sidecar, mutual TLS": {ip + ":8080", mutual("http/1.1"), mutual("h2")},
		"gateway":             {edge + ":8080", nil, nil},
	} {
		for _, tc := range []struct {
			path  string
			hosts []string
			http1 int
			http2 int
		}{
			{"/", []string{"web.test"}, 200, 200},
			{"/", []string{"web.test:8080"}, 200, 200},
			{"/strict", []string{"web.test."}, 200, 200},
			{"/strict", []string{"other.test"}, 403, 403},
			{"/", []string{"admin.test"}, 403, 403},
			{"/", []string{"ADMIN.test"}, 403, 403},
			{"/", []string{"admin.test."}, 403, 403},
			{"/", []string{"admin.test:8080"}, 403, 403},
			{"/", []string{"Admin.Test.:8080"}, 403, 403},
			// over HTTP/2 the application gets :authority alone
			{"/", []string{"web.test", "admin.test"}, 400, 200},
			{"/", []string{"admin.test", "web.test"}, 400, 403},
			{"/", []string{"admin.test", "admin.test"}, 400, 403},
			{"/", []string{"", "admin.test", "web.test"}, 400, 0},
			{"/", []string{"admin.test,web.test"}, 400, 400},
			{"/", []string{"web.test, admin.test"}, 400, 0},
			{"/", []string{"web.test,admin.test:80"}, 400, 400},
			{"/", []string{"web.test admin.test"}, 400, 0},
			{"/", []string{"web.test\tadmin.test"}, 400, 0},
			{"/", []string{"user@admin.test"}, 400, 0},
			{"/", []string{"%61dmin.test"}, 400, 400},
			{"/", []string{"admin.test.."}, 400, 400},
			{"/", []string{"admin.test..:80"}, 400, 400},
			{"/", []string{"admin.test.:8."}, 400, 400},
			{"/", []string{".admin.test"}, 400, 400},
			{"/", []string{"admin..test"}, 400, 400},
			{"/", []string{"admin.test;x"}, 400, 400},
			{"/", []string{"admin.test:8x"}, 400, 400},
			{"/", []string{"admin.test:80:80"}, 400, 400},
			{"/", []string{"[admin.test]"}, 400, 400},
			{"/", []string{"[bad.cafe]"}, 400, 400},
			{"/", []string{"web.test/admin.test"}, 400, 0},
			{"/", []string{"\x80admin.test"}, 400, 0},
			{"/", []string{""}, 400, 0},
			{"/", []string{"", "admin.test"}, 403, 403},
			{"/", []string{"", "ADMIN.test.."}, 400, 400},
			{"http://admin.test/", []string{"web.test"}, 403, 0},
			{"http://admin.test../", []string{"web.test"}, 400, 0},
			{"http://user@admin.test/", []string{"web.test"}, 403, 0},
			{"/", []string{"WEB.test"}, 200, 200},
			{"/", []string{"web.test:"}, 200, 200},
			{"/", []string{"web_1.test-2"}, 200, 200},
			{"/", []string{"localhost"}, 200, 200},
			{"/", []string{"10.0.0.1:8080"}, 200, 200},
			{"/", []string{"[2001:db8::1]"}, 200, 200},
			{"/", []string{"[::ffff:10.0.0.1]:8080"}, 200, 200},
		} {
			check := func(protocol string, want int, ask func(*testing.T, string, []string) int) {
				before := backend.Requests()
				got := ask(t, tc.path, tc.hosts)
				if reached := backend.Requests() > before; got != want || reached != (want == 200) {
					t.Errorf("%s, %s, %s %q: got %d, reached: %v, want %d", door, protocol, tc.path, tc.hosts, got,
						reached, want)
				}
				last := backend.Last()
				if host := last[len(last)-1].Host; want == 200 && strings.Contains(host, "admin") {
					t.Errorf("%s, %s, %q: the application gets the host %q", door, protocol, tc.hosts, host)
				}
			}
			check("HTTP/1.1", tc.http1, at.http1)
			check("HTTP/2", tc.http2, at.http2)
		}
	}
}

// hostDoor is a listener, with the TLS of HTTP/1.1 and of HTTP/2 there; nil is plaintext.
type hostDoor struct {
	address    string
	tls1, tls2 *tls.Config
}

func (d hostDoor) dial(t *testing.T, config *tls.Config) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", d.address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the proxy may have closed it
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if config == nil {
		return conn
	}
	return tls.Client(conn, config)
}

// http1 sends a line host for each of hosts, and returns the status.
func (d hostDoor) http1(t *testing.T, path string, hosts []string) int {
	t.Helper()
	conn := d.dial(t, d.tls1)
	text := "GET " + path + " HTTP/1.1\r\nconnection: close\r\n"
	for _, h := range hosts {
		text += "host: " + h + "\r\n"
	}
	if _, err := fmt.Fprint(conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", hosts, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// http2 sends the first of hosts as :authority, unless it is empty, and each of the others as host.
// It returns 0 when Envoy closes the connection, as it does after a malformed request.
func (d hostDoor) http2(t *testing.T, path string, hosts []string) int {
	t.Helper()
	conn := d.dial(t, d.tls2)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	field := func(name, value string) {
		if err := e.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	field(":method", "GET")
	field(":scheme", "http")
	field(":path", path)
	if hosts[0] != "" {
		field(":authority", hosts[0])
	}
	for _, h := range hosts[1:] {
		field("host", h)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	request := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}
	if err := f.WriteHeaders(request); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return 0
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			status, err := strconv.Atoi(h.PseudoValue("status"))
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
	}
}
