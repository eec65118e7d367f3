package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// settings are the mesh of all tasks. $JUDGE is the address of the provider of CUSTOM policies.
const settings = `fetch: {allow: [127.0.0.0/8]}
mesh:
  trustDomain: new.test
  trustDomainAliases: [old.test]
  meshMTLS: {minProtocolVersion: TLSV1_3}
  extensionProviders:
  - name: judge
    envoyExtAuthzHttp: {service: judge.test, port: 8080, includeRequestHeadersInCheck: [x-pass]}
`

// world is the mesh of all tasks. Its workloads are described in testdata/world.yaml.
type world struct {
	*harness.Mesh
	dir    string // of certificates
	roots  *x509.CertPool
	client *harness.Proxy // a sidecar; applications connect to its ports
	web    *harness.Proxy // a sidecar with an application
	app    *harness.Backend
	edge   *harness.Proxy // the ingress gateway
	exit   *harness.Proxy // the egress gateway
	// other has an identity of another namespace than web, and no Envoy.
	other *harness.Identity
	// backends are applications without Envoy: v1, v2, v3, and near, zone, far.
	backends map[string]*harness.Backend
	vars     *strings.Replacer
}

// certified are the hosts that have certificates in the folder $DIR, HOST.pem and HOST-key.pem, of
// the authority ca.pem.
func certified() []string {
	return []string{"one.secure.test", "two.secure.test", "pass.test", "web.test", "external.test", "leave-tls.test",
		"a.wild.test", "client"}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), roots: x509.NewCertPool(), backends: map[string]*harness.Backend{}}
	w.certify(t)
	w.Mesh = harness.New(t, nil, harness.Secure(settings))
	vars := []string{"$DIR", w.dir}
	for _, name := range []string{"v1", "v2", "v3", "near", "zone", "far"} {
		ip := w.IP()
		w.backends[name] = harness.NewBackend(t, name, ip+":8080")
		harness.TCPEcho(t, name, ip+":9000")
		harness.ServeEcho(t, name, w.listenTLS(t, ip+":9443", false))
		harness.ServeHTTP(t, w.listenTLS(t, ip+":8443", false), w.backends[name])
		harness.ServeHTTP(t, w.listenTLS(t, ip+":8444", true), w.backends[name])
		vars = append(vars, "$"+strings.ToUpper(name), ip)
	}
	judge := w.IP()
	w.serve(t, judge+":8080", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-pass") != "yes" {
			rw.WriteHeader(http.StatusForbidden)
		}
	}))
	tunnel := w.IP()
	w.serve(t, tunnel+":3128", http.HandlerFunc(connect))
	ips := map[string]string{}
	for _, name := range []string{"client", "web", "edge", "exit"} {
		ips[name] = w.IP()
		vars = append(vars, "$"+strings.ToUpper(name), ips[name])
	}
	w.app = harness.NewBackend(t, "web", ips["web"]+":18080")
	harness.TCPEcho(t, "web", ips["web"]+":19000")
	w.vars = strings.NewReplacer(append(vars, "$JUDGE", judge, "$TUNNEL", tunnel)...)
	text, err := os.ReadFile("testdata/world.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.Write("world.yaml", w.vars.Replace(string(text)))

	var starts sync.WaitGroup
	join := func(proxy **harness.Proxy, name, group string, router bool) {
		starts.Go(func() {
			*proxy = w.Join(harness.Workload{Name: name + "-1", Group: group, IP: ips[name], Router: router})
		})
	}
	join(&w.client, "client", "shop/client", false)
	join(&w.web, "web", "shop/web", false)
	join(&w.edge, "edge", "gateways/ingress", true)
	join(&w.exit, "exit", "gateways/egress", true)
	starts.Go(func() { w.other = w.Enrol(harness.Workload{Name: "other-1", Group: "bar/other"}) })
	starts.Wait()
	return w
}

// backendIP is the address of a backend.
func (w *world) backendIP(name string) string {
	ip, _, _ := strings.Cut(w.backends[name].Address, ":")
	return ip
}

// certify writes the certificates of the tasks.
func (w *world) certify(t *testing.T) {
	t.Helper()
	ca := harness.NewCA(t)
	w.roots.AppendCertsFromPEM(ca.PEM())
	files := map[string][]byte{"ca.pem": ca.PEM()}
	for _, host := range certified() {
		files[host+".pem"], files[host+"-key.pem"] = ca.Issue(t, host)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// pair is the certificate of a host.
func (w *world) pair(host string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(w.dir, host+".pem"), filepath.Join(w.dir, host+"-key.pem"))
}

// listenTLS listens with the certificates of all hosts; mutual asks clients for theirs.
func (w *world) listenTLS(t *testing.T, address string, mutual bool) net.Listener {
	t.Helper()
	config := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := w.pair(hello.ServerName)
		return &pair, err
	}}
	if mutual {
		config.ClientCAs, config.ClientAuth = w.roots, tls.RequireAndVerifyClientCert
	}
	l, err := tls.Listen("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) serve(t *testing.T, address string, h http.Handler) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	harness.ServeHTTP(t, l, h)
}

// connect is an HTTP proxy for TLS: it answers CONNECT and passes bytes on.
func connect(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		rw.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", r.Host)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer out.Close()
	in, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	if _, err := fmt.Fprint(in, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	pass(out, in, buffered.Reader)
}

// pass copies in both directions until one ends.
func pass(out, in net.Conn, buffered *bufio.Reader) {
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out) // ends with a connection
		_ = in.Close()
	})
	_, _ = io.Copy(out, buffered)
	_ = out.Close()
	back.Wait()
}
