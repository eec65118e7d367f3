package gen

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// issuerOf signs tokens, and publishes the key to verify them.
func issuerOf(t *testing.T) (sign func(claims map[string]any) string, keys string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "a",
		Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "a"}},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(claims map[string]any) string {
		body, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(body)
		if err != nil {
			t.Fatal(err)
		}
		out, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}, string(text)
}

// asked sends a request and returns the status and the body of the answer; "closed" when there is
// none.
func asked(conn io.ReadWriter, host, path, token string) string {
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", path, host,
		token); err != nil {
		return "closed"
	}
	status, body := answered(conn)
	if status == 0 {
		return "closed"
	}
	return fmt.Sprint(status, " ", body)
}

// The real Envoy as a gateway judges callers: by the names that their certificates bear, of which
// the mesh's are for the mesh's authority alone to give, and by their tokens, whose claims choose
// routes too.
func TestEnvoyGatewayJudges(t *testing.T) {
	t.Parallel()
	const address = "127.0.17.9"
	ca, outside := newTestCA(t), newTestCA(t)
	sign, keys := issuerOf(t)
	backend := func(name string) *clusterv3.Cluster {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(s.Close)
		return staticCluster("outbound|80||"+name+".edge.svc.cluster.local", s.Listener.Addr().String())
	}
	files := outside.gatewayFiles(t)
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("type: router\naddresses: [10.0.0.1]\nnamespace: edge\nidentity: true\n")},
		{Name: "config.yaml", Data: []byte(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {}
  servers:
  - {port: {number: 18443, name: a, protocol: HTTPS}, bind: %[1]s, hosts: [optional.example.com], tls: {mode: OPTIONAL_MUTUAL, %[2]s}}
  - {port: {number: 18443, name: c, protocol: HTTPS}, bind: %[1]s, hosts: [mesh.example.com], tls: {mode: ISTIO_MUTUAL}}
  - {port: {number: 18444, name: d, protocol: TLS}, bind: %[1]s, hosts: [raw.example.com], tls: {mode: MUTUAL, %[2]s}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: edge}
spec:
  hosts: ["*.example.com"]
  gateways: [edge]
  http:
  - match: [{headers: {"@request.auth.claims.group": {exact: admin}}}]
    route: [{destination: {host: admin, port: {number: 80}}}]
  - route: [{destination: {host: web, port: {number: 80}}}]
  tls:
  - match: [{sniHosts: [raw.example.com], port: 18444}]
    route: [{destination: {host: raw, port: {number: 80}}}]
  tcp:
  - match: [{port: 18444}]
    route: [{destination: {host: raw, port: {number: 80}}}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: edge}
spec: {jwtRules: [{issuer: https://issuer.example, jwks: '%[3]s'}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: callers, namespace: edge}
spec:
  rules:
  - {from: [{source: {principals: [cluster.local/ns/ops/sa/x]}}]}
  - {from: [{source: {namespaces: [ops]}}]}
  - {from: [{source: {principals: [partner.example/ns/ops/sa/y]}}]}
  - {to: [{operation: {paths: [/open]}}]}
  - {from: [{source: {requestPrincipals: ["https://issuer.example/*"]}}], to: [{operation: {paths: [/token]}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: never, namespace: edge}
spec:
  action: DENY
  rules:
  - {to: [{operation: {paths: [/never], ports: ["18443"]}}]}
  - to: [{operation: {ports: ["18443"]}}]
    when:
    - {key: "request.headers[:authority]", values: [optional.example.com]}
    - {key: "request.headers[:path]", values: ["/open?secret*"]}
`, address, files, keys))},
	}})
	g := New()
	listeners := withRoutesInside(t, g, sc)
	ca.withSecrets(t, listeners, ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/edge/sa/gateway"}),
		decoded[*tlsv3.Secret](t, g.Set(resource.SecretType, sc)))
	runEnvoy(t, listeners, []*clusterv3.Cluster{backend("web"), backend("admin"),
		staticCluster("outbound|80||raw.edge.svc.cluster.local", tcpServer(t, "raw"))})

	by := func(ca *testCA, uri string) []tls.Certificate { return []tls.Certificate{ca.leaf(t, leafOf{uri: uri})} }
	clients := map[string][]tls.Certificate{
		"none":      nil,
		"workload":  by(ca, "spiffe://cluster.local/ns/ops/sa/x"),
		"colleague": by(ca, "spiffe://cluster.local/ns/ops/sa/other"),
		"other":     by(ca, "spiffe://cluster.local/ns/shop/sa/x"),
		"impostor":  by(outside, "spiffe://cluster.local/ns/ops/sa/x"),
		"namesake":  by(outside, "spiffe://partner.example/ns/ops/sa/x"),
		"partner":   by(outside, "spiffe://partner.example/ns/ops/sa/y"),
		"named":     {outside.leaf(t, leafOf{dns: []string{"x.example.com"}})},
	}
	dial := func(client, host, port string) net.Conn {
		return tls.Client(dialUntil(t, address+":"+port), &tls.Config{ServerName: host + ".example.com",
			Certificates: clients[client], InsecureSkipVerify: true})
	}
	exp := time.Now().Add(time.Hour).Unix()
	user := sign(map[string]any{"iss": "https://issuer.example", "sub": "bob", "exp": exp})
	admin := sign(map[string]any{"iss": "https://issuer.example", "sub": "eve", "exp": exp,
		"group": []string{"staff", "admin"}})
	forged := admin[:strings.LastIndexByte(admin, '.')] + user[strings.LastIndexByte(user, '.'):]
	const ok, admitted, denied = "200 web", "200 admin", "403 RBAC: access denied"
	for _, tc := range []struct{ client, host, path, token, want string }{
		{"workload", "mesh", "/", "", ok}, {"colleague", "mesh", "/", "", ok}, {"other", "mesh", "/", "", denied}, {"other", "mesh", "/open", "", ok}, {"workload", "mesh", "/never", "", denied},
		{"none", "optional", "/", "", denied}, {"none", "optional", "/open", "", ok}, {"named", "optional", "/", "", denied},
		{"impostor", "optional", "/", "", denied}, {"impostor", "optional", "/open", "", denied}, {"namesake", "optional", "/", "", denied}, {"partner", "optional", "/", "", ok},
		{"none", "optional", "/token", "", denied}, {"none", "optional", "/token", user, ok}, {"none", "optional", "/token", admin, admitted}, {"none", "optional", "/token", forged, "401 Jwt verification fails"},
		{"none", "optional", "/open", admin, admitted}, {"none", "optional", "/open?x", "", ok}, {"none", "optional", "/open?secret=1", "", denied}, {"workload", "mesh", "/open?secret=1", "", ok},
	} {
		if got := asked(dial(tc.client, tc.host, "18443"), tc.host+".example.com", tc.path, tc.token); got != tc.want {
			t.Errorf("%s asks %s for %s: got %q, want %q", tc.client, tc.host, tc.path, got, tc.want)
		}
	}
	for client, want := range map[string]string{"impostor": "closed", "namesake": "closed", "named": "closed",
		"partner": "raw got hello\n"} {
		if got := said(dial(client, "raw", "18444")); got != want {
			t.Errorf("%s connects: got %q, want %q", client, got, want)
		}
	}
}

// said says hello and returns the answer; "closed" when there is none.
func said(conn io.ReadWriter) string {
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "closed"
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "closed"
	}
	return line
}
