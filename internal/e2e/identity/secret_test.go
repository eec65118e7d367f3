package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// edge is a mesh with a gateway whose servers name secrets.
type edge struct {
	*harness.Mesh
	t       *testing.T
	dir     string // secrets.dir
	ca      *harness.CA
	gateway *harness.Proxy
}

// gatewayObject is a Gateway of a namespace and its route to the application. A server is "name: tls"
// for the host name.test.
func gatewayObject(namespace, ip string, servers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: %[1]s}
spec:
  selector: {app: %[1]s}
  servers:
`, namespace)
	for _, s := range servers {
		name, settings, _ := strings.Cut(s, ": ")
		fmt.Fprintf(&b, "  - {port: {number: 8443, name: %[1]s, protocol: HTTPS}, bind: %[2]s, hosts: [%[1]s.test], tls: {%[3]s}}\n",
			name, ip, settings)
	}
	fmt.Fprintf(&b, `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gw, namespace: %s}
spec:
  hosts: ["*.test"]
  gateways: [gw]
  http: [{route: [{destination: {host: app.local, port: {number: 8080}}}]}]
`, namespace)
	return b.String()
}

// edgeGroup is a WorkloadGroup of gateways in a namespace of that name.
func edgeGroup(name string) string {
	return strings.ReplaceAll(group(name), "namespace: shop", "namespace: "+name)
}

func newEdge(t *testing.T) *edge {
	dir := t.TempDir()
	e := &edge{t: t, dir: dir, ca: harness.NewCA(t)}
	e.Mesh = harness.New(t, map[string]string{"groups.yaml": edgeGroup("edge") + edgeGroup("other")},
		harness.Secure("secrets: {dir: "+dir+"}"))
	app := harness.NewBackend(t, "app", e.IP()+":8080")
	e.Write("app.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.local]
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  endpoints: [{address: %s}]
`, strings.TrimSuffix(app.Address, ":8080")))
	e.gateway = e.Join(harness.Workload{Name: "edge-1", Group: "edge/edge", Router: true})
	return e
}

// file writes a file of a secret by rename.
func (e *edge) file(name string, content []byte) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", content, 0o600),
		os.Rename(path+".new", path))
	if err != nil {
		e.t.Fatal(err)
	}
	return path
}

// create runs "ashorectl secret create" with a new certificate for host, and returns its key.
func (e *edge) create(name, host string) (key []byte) {
	e.t.Helper()
	cert, key := e.ca.Issue(e.t, host)
	dir := e.t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		e.t.Fatal(err)
	}
	out := e.ctl("secret", "create", name, "-n", "edge", "--cert", certFile, "--key", keyFile)
	if !strings.Contains(out, "secret edge/"+name+" is in the store, expires ") {
		e.t.Errorf("ashorectl secret create says %q", out)
	}
	return key
}

// ctl runs ashorectl, and returns what it printed.
func (e *edge) ctl(args ...string) string {
	e.t.Helper()
	out, code, err := harness.Command("ashorectl", append([]string{"--socket", e.Socket()}, args...)...)
	if err != nil || code != 0 {
		e.t.Fatalf("ashorectl %v: exit code %d, %v\n%s", args, code, err, out)
	}
	return out
}

// get sends a request to NAME.test at a proxy on a new connection, and returns the certificate that
// was shown.
func (e *edge) get(p *harness.Proxy, name string, clients ...tls.Certificate) (*x509.Certificate, error) {
	transport := &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: e.ca.Pool, ServerName: name + ".test", Certificates: clients}}
	req, err := http.NewRequest(http.MethodGet, "https://"+p.IP+":8443/", nil)
	if err != nil {
		return nil, err
	}
	req.Host = name + ".test"
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d %s %w", resp.StatusCode, body, err)
	}
	return resp.TLS.PeerCertificates[0], nil
}

// answers waits until a request is answered.
func (e *edge) answers(name string, clients ...tls.Certificate) *x509.Certificate {
	e.t.Helper()
	var leaf *x509.Certificate
	harness.Eventually(e.t, "https://"+name+".test answers", func() (err error) {
		leaf, err = e.get(e.gateway, name, clients...)
		return err
	})
	return leaf
}

// problem waits until the problems have one with this text.
func (e *edge) problem(text string) {
	e.t.Helper()
	harness.Eventually(e.t, "a problem: "+text, func() error {
		list, err := admin.Send(e.t.Context(), e.Admin, admin.CallProblems, admin.None{})
		for _, p := range list {
			if strings.Contains(p.String(), text) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("there are %v", list))
	})
}

// A gateway serves hosts with certificates of the store and of files, and asks clients for
// certificates of authorities in a secret. A host whose secret is missing fails alone, until there
// is one. A rotation fails no request.
func TestSecretsAtGateway(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	first := e.create("one", "one.test")
	cert, key := e.ca.Issue(t, "two.test")
	e.file("edge/two/tls.crt", cert)
	e.file("edge/two/tls.key", key)
	clients := harness.NewCA(t)
	e.file("edge/two-cacert/ca.crt", clients.PEM())
	e.Write("gw.yaml", gatewayObject("edge", e.gateway.IP, "one: mode: SIMPLE, credentialName: one",
		"two: mode: MUTUAL, credentialName: two", "three: mode: SIMPLE, credentialName: three"))

	old := e.answers("one")
	clientCert, clientKey := clients.Issue(t, "client.test")
	client, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	e.answers("two", client)
	if _, err := e.get(e.gateway, "two"); err == nil {
		t.Error("two.test answers a client without a certificate")
	}
	if _, err := e.get(e.gateway, "three"); err == nil {
		t.Error("three.test answers without a secret")
	}
	e.problem("Gateway edge/gw spec.servers[2].tls: there is no usable secret three with a certificate in namespace edge")
	e.create("three", "three.test")
	e.answers("three")

	drains := e.gateway.Stat("listener_manager.listener_modified") + e.gateway.Stat("listener_manager.listener_in_place_updated")
	load := harness.Start(t, 2, 5*time.Millisecond, func() (harness.Answer, error) {
		_, err := e.get(e.gateway, "one")
		return harness.Answer{Status: http.StatusOK}, err
	})
	second := e.create("one", "one.test")
	harness.Eventually(t, "the new certificate is shown", func() error {
		if leaf, err := e.get(e.gateway, "one"); err != nil || leaf.SerialNumber.Cmp(old.SerialNumber) == 0 {
			return fmt.Errorf("still the old one, %w", err)
		}
		return nil
	})
	cert, key = e.ca.Issue(t, "two.test")
	e.file("edge/two/tls.crt", cert)
	e.problem("secret edge/two: tls.key: tls: private key does not match public key; what was read before stays in use")
	e.answers("two", client)
	e.file("edge/two/tls.key", key)
	load.Clean(t, 20)
	if now := e.gateway.Stat("listener_manager.listener_modified") + e.gateway.Stat("listener_manager.listener_in_place_updated"); now != drains {
		t.Errorf("the rotations changed listeners: %d, %d before", now, drains)
	}
	e.hidden(first, second, key)
}

// hidden checks that no key of a secret is in the state folder, in the log, or in what operators
// read.
func (e *edge) hidden(keys ...[]byte) {
	e.t.Helper()
	texts := map[string][]byte{"the log": []byte(e.Ashored.Log())}
	err := filepath.WalkDir(e.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		texts[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, args := range [][]string{{"proxy-config", "all", "edge-1.edge", "-o", "yaml"}, {"secret", "list", "-o", "json"},
		{"audit", "tail", "-n", "1000", "-o", "json"}, {"history"}, {"status", "-o", "json"}} {
		texts[strings.Join(args, " ")] = []byte(e.ctl(args...))
	}
	texts["Envoy's configuration"] = []byte(e.gateway.ConfigDump())
	for _, key := range keys {
		part := bytes.Split(key, []byte("\n"))[2][:32] // what is before is equal in all keys
		encoded := base64.StdEncoding.EncodeToString(key)[160:200]
		for name, text := range texts {
			if bytes.Contains(text, part) || bytes.Contains(text, []byte(encoded)) {
				e.t.Errorf("%s has a key", name)
			}
		}
	}
}

// A gateway of another namespace does not get a secret, whatever Gateway selects it. A gateway that
// has a deleted secret keeps it.
func TestSecretOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.create("one", "one.test")
	e.Write("gw.yaml", gatewayObject("edge", e.gateway.IP, "one: mode: SIMPLE, credentialName: one"))
	e.answers("one")
	ip := e.IP()
	e.Write("other.yaml", gatewayObject("other", ip, "one: mode: SIMPLE, credentialName: one"))
	other := e.Join(harness.Workload{Name: "other-1", Group: "other/other", IP: ip, Router: true})
	e.Audited("secret.refuse", "spiffe://cluster.local/ns/other/sa/other", "kubernetes://one", "other namespace")
	if _, err := e.get(other, "one"); err == nil {
		t.Error("the gateway of namespace other answers")
	}
	e.problem("Gateway other/gw spec.servers[0].tls: there is no usable secret one with a certificate in namespace other, " +
		"only in namespace edge")
	if out := e.ctl("secret", "list"); !strings.Contains(out, "one.test") || !strings.Contains(out, "store") {
		t.Errorf("listed is\n%s", out)
	}
	e.ctl("secret", "delete", "edge/one")
	e.problem("Gateway edge/gw spec.servers[0].tls: there is no usable secret one with a certificate in namespace edge")
	if _, err := e.get(e.gateway, "one"); err != nil {
		t.Errorf("after the deletion: %v", err)
	}
	if out := e.ctl("secret", "list"); out != "none\n" {
		t.Errorf("listed is\n%s", out)
	}
}

// A gateway shows a server outside of the mesh the certificate of a secret, and verifies the server by
// the authorities of that secret. So does a sidecar that a DestinationRule selects; another one does
// not connect.
func TestSecretOfDestinationRule(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	clients := harness.NewCA(t)
	cert, key := clients.Issue(t, "gateway.test")
	e.file("edge/partner/tls.crt", cert)
	e.file("edge/partner/tls.key", key)
	e.file("edge/partner/ca.crt", e.ca.PEM())
	serverCert, serverKey := e.ca.Issue(t, "partner.test")
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	partner := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].DNSNames[0])
	}))
	partner.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool}
	partner.StartTLS()
	t.Cleanup(partner.Close)
	_, port, _ := strings.Cut(partner.Listener.Addr().String(), ":")
	e.Write("partner.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: partner, namespace: shop}
spec:
  hosts: [partner.test]
  resolution: STATIC
  ports: [{number: %[1]s, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: partner, namespace: shop}
spec:
  host: partner.test
  trafficPolicy: {tls: {mode: MUTUAL, credentialName: partner, sni: partner.test}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: partner, namespace: edge}
spec:
  host: partner.test
  workloadSelector: {matchLabels: {app: client}}
  trafficPolicy: {tls: {mode: MUTUAL, credentialName: partner, sni: partner.test}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: edge}
spec:
  selector: {app: edge}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, bind: %[2]s, hosts: [partner.test]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gw, namespace: edge}
spec:
  hosts: [partner.test]
  gateways: [gw]
  http: [{route: [{destination: {host: partner.test, port: {number: %[1]s}}}]}]
`, port, e.gateway.IP))
	e.Write("clients.yaml", strings.ReplaceAll(group("client")+group("stranger"), "namespace: shop", "namespace: edge"))
	client := e.Join(harness.Workload{Name: "client-1", Group: "edge/client"})
	stranger := e.Join(harness.Workload{Name: "stranger-1", Group: "edge/stranger"})
	request := harness.Request{Host: "partner.test"}
	for name, at := range map[string]string{"gateway": e.gateway.IP + ":8080", "selected sidecar": client.IP + ":" + port} {
		harness.NewClient(t, at).Want(t, name+": the partner sees the certificate", request, func(a harness.Answer) error {
			if a.Status != http.StatusOK || a.Body != "gateway.test" {
				return fmt.Errorf("status %d %s", a.Status, a.Body)
			}
			return nil
		})
	}
	harness.NewClient(t, stranger.IP+":"+port).Want(t, "a sidecar without the secret", request, harness.Status(503))
}
