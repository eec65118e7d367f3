package hostile

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// X-Forwarded-Client-Cert names the peer of the connection alone: what a caller wrote there is
// dropped.
func TestForwardedCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"mesh.yaml": `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: thief, namespace: shop}
spec: {template: {serviceAccount: thief}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
`}, harness.Secure(""))
	ip := m.IP()
	harness.NewBackend(t, "web", ip+":18080")
	m.Join(harness.Workload{Name: "web", Group: "shop/web", IP: ip})
	thief := m.Enrol(harness.Workload{Name: "thief", Group: "shop/thief"})

	mutual := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"istio", "http/1.1"},
		Certificates: []tls.Certificate{thief.Certificate},
	}
	for name, tc := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"mutual TLS": {mutual, "URI=spiffe://cluster.local/ns/shop/sa/thief;DNS=w--thief.a--thief.v--latest.c--cluster--2elocal.peer.ashore"},
		"plaintext":  {nil, ""},
	} {
		got := forwardedCertificate(t, ip+":8080", tc.config)
		if strings.Contains(got, "admin") || !strings.HasSuffix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: the application gets %q, want one element that ends with %q", name, got, tc.want)
		}
	}
}

// forwardedCertificate is what the application gets when a caller claims to be admin, twice.
func forwardedCertificate(t *testing.T, address string, config *tls.Config) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the answer was read
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		conn = tls.Client(conn, config)
	}
	const claim = "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/shop/sa/admin\r\n"
	const request = "GET / HTTP/1.1\r\nhost: web.test\r\nconnection: close\r\n" + claim + claim + "\r\n"
	if _, err := fmt.Fprint(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %d %q, %v", resp.StatusCode, body, err)
	}
	var seen harness.Seen
	if err := json.Unmarshal(body, &seen); err != nil {
		t.Fatal(err)
	}
	return strings.Join(seen.Header.Values("x-forwarded-client-cert"), ",")
}
