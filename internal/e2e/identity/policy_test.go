package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// A created, changed or deleted AuthorizationPolicy applies to the next request on an open
// connection, and no listener changes. ashorectl explains why.
func TestPolicyOnOpenConnection(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a") + group("b"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	a, b := m.Enrol(harness.Workload{Name: "a-1", Group: "shop/a"}), m.Enrol(harness.Workload{Name: "b-1",
		Group: "shop/b"})
	ofA, ofB := hold(t, web, a), hold(t, web, b)
	before := listeners(web.Proxy)
	get := func(h held, path string) (int, error) {
		h.http.path = path
		status, _, err := h.http.get()
		return status, err
	}
	becomes := func(what string, h held, path string, want int) {
		t.Helper()
		harness.Eventually(t, what, func() error {
			status, err := get(h, path)
			if err != nil {
				t.Fatalf("%s: the open connection is cut: %v", what, err)
			}
			if status != want {
				return fmt.Errorf("a request gets %d, want %d", status, want)
			}
			return nil
		})
	}
	stays := func(what string, h held, path string, want int) {
		t.Helper()
		if status, err := get(h, path); err != nil || status != want {
			t.Errorf("%s: a request gets %d, error %v, want %d", what, status, err, want)
		}
	}

	m.Write("deny.yaml", policy("deny-a",
		`{selector: {matchLabels: {app: web}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/a"]}}]}]}`))
	becomes("a is denied", ofA, "/", http.StatusForbidden)
	stays("b is not denied", ofB, "/", http.StatusOK)
	out := command(t, m, "authz", "explain", "shop/a", "shop/web", "--port", "8080", "--path", "/")
	if !strings.HasPrefix(out, "DENIED: ") || !strings.Contains(out, "shop/deny-a") {
		t.Errorf("ashorectl authz explain says:\n%s", out)
	}
	m.Write("deny.yaml", policy("deny-a",
		`{selector: {matchLabels: {app: web}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/a"]}}], to: [{operation: {paths: ["/admin*"]}}]}]}`))
	becomes("a is denied one path alone", ofA, "/", http.StatusOK)
	stays("the path", ofA, "/admin/keys", http.StatusForbidden)
	m.Write("deny.yaml", policy("allow-b",
		`{selector: {matchLabels: {app: web}}, action: ALLOW, rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/b"]}}]}]}`))
	becomes("b alone is allowed", ofA, "/", http.StatusForbidden)
	stays("b", ofB, "/admin/keys", http.StatusOK)
	m.Remove("deny.yaml")
	becomes("a is let in again", ofA, "/", http.StatusOK)
	stays("b as ever", ofB, "/", http.StatusOK)
	if after := listeners(web.Proxy); after != before {
		t.Errorf("the listeners were touched: %s, before %s", after, before)
	}
	command(t, m, "workload", "revoke", "shop/a-1")
	becomes("a is revoked", ofA, "/", http.StatusForbidden)
	if out := command(t, m, "authz", "explain", "shop/a", "shop/web", "--port", "8080"); !strings.HasPrefix(out,
		"DENIED: ") || !strings.Contains(out, "every workload with this identity (shop/a-1) is revoked") {
		t.Errorf("ashorectl authz explain says of a revoked workload:\n%s", out)
	}
}

// listeners are Envoy's counters of what was done to its listeners.
func listeners(p *harness.Proxy) string {
	var b strings.Builder
	for _, name := range []string{"listener_added", "listener_modified", "listener_removed",
		"listener_in_place_updated", "total_listeners_draining", "total_filter_chains_draining"} {
		fmt.Fprintf(&b, "%s=%d ", name, p.Stat("listener_manager."+name))
	}
	return b.String()
}

// issuer signs tokens, and serves its keys.
type issuer struct {
	key     *ecdsa.PrivateKey
	fetched atomic.Int64
	url     string
}

func newIssuer(t *testing.T, address string) *issuer {
	t.Helper()
	i := &issuer{key: ca.NewKey(), url: "http://" + address + "/keys"}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	harness.ServeHTTP(t, l, i)
	return i
}

// ServeHTTP answers with the keys.
func (i *issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	i.fetched.Add(1)
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b64 := base64.RawURLEncoding.EncodeToString
	// who asks may be gone
	_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k","x":%q,"y":%q}]}`,
		b64(point[1:33]), b64(point[33:]))
}

// token has these claims in addition to the issuer's.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	claims["iss"], claims["exp"] = "https://issuer.test", time.Now().Add(time.Hour).Unix()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + b64(text)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 2*crypto.SHA256.Size())
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + b64(signature)
}

// A gateway asks for tokens whose keys the control plane fetched, routes by what they claim, and
// speaks mutual TLS with the workloads behind it.
func TestTokensAndClaimsAtGateway(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web") + service("beta"),
		"gateway.yaml": group("gateway"), "mode.yaml": mode("STRICT")},
		harness.Secure("fetch: {allow: [127.0.0.0/8]}"))
	keys := newIssuer(t, m.IP()+":80")
	serve(t, m, "web", "web-1")
	serve(t, m, "beta", "beta-1")
	gateway := m.Join(harness.Workload{Name: "gateway-1", Group: "shop/gateway", Router: true})
	m.Write("routes.yaml", strings.Replace(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: gateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, bind: ADDRESS, hosts: ["edge.test"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: shop}
spec:
  hosts: [edge.test]
  gateways: [edge]
  http:
  - match: [{headers: {"@request.auth.claims.group": {exact: testers}}}]
    route: [{destination: {host: beta.test, port: {number: 8080}}}]
  - route: [{destination: {host: web.test, port: {number: 8080}}}]
`, "ADDRESS", gateway.IP, 1))
	m.Write("tokens.yaml", fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: edge, namespace: shop}
spec:
  selector: {matchLabels: {app: gateway}}
  jwtRules: [{issuer: "https://issuer.test", jwksUri: %q}]
`, keys.url))
	client := gateway.Client(httpPort)
	with := func(token string) harness.Request {
		r := harness.Request{Host: "edge.test", Header: map[string]string{}}
		if token != "" {
			r.Header["Authorization"] = "Bearer " + token
		}
		return r
	}
	client.Want(t, "who claims to be a tester", with(keys.token(t, map[string]any{"sub": "ann", "group": "testers"})),
		harness.From("beta-1"))
	if keys.fetched.Load() == 0 {
		t.Error("nobody fetched the keys")
	}
	client.Want(t, "who claims something else", with(keys.token(t, map[string]any{"sub": "bob", "group": "staff"})),
		harness.From("web-1"))
	client.Want(t, "who has no token", with(""), harness.From("web-1"))
	claims(t, fmt.Sprintf("%s:%d", gateway.IP, httpPort))
	stranger := newIssuer(t, m.IP()+":80")
	client.Want(t, "a token of somebody else", with(stranger.token(t, map[string]any{"group": "testers"})),
		harness.Status(http.StatusUnauthorized))
	m.Write("must.yaml", policy("must",
		`{selector: {matchLabels: {app: gateway}}, action: DENY, rules: [{from: [{source: {notRequestPrincipals: ["*"]}}]}]}`))
	client.Want(t, "who has no token, when one is needed", with(""), harness.Status(http.StatusForbidden))
	client.Want(t, "who has one", with(keys.token(t, map[string]any{"sub": "ann", "group": "testers"})),
		harness.From("beta-1"))
}

// claims sends a header that is named as a claim is in routes: it makes no caller a tester.
func claims(t *testing.T, address string) {
	t.Helper()
	p, err := connect(t, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(p,
		"GET / HTTP/1.1\r\nhost: edge.test\r\n@request.auth.claims.group: testers\r\nrequest.auth.claims.group: testers\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if from := resp.Header.Get("x-backend"); from == "beta-1" {
		t.Errorf("a header is taken for a claim: %d from %s", resp.StatusCode, from)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
