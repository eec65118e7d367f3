package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Between two workloads goes mutual TLS: each end presents its certificate, the application
// receives the caller's identity, and the request cannot be read on the network.
func TestMutualTLSOnTheWire(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	a := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	answers(t, a.Client(httpPort), "web-1")
	t.Run("the client's end", func(t *testing.T) { clientEnd(t, m, a) })
	t.Run("the server's end", func(t *testing.T) { serverEnd(t, m, web, a) })
	t.Run("on the way", func(t *testing.T) { onTheWay(t, m, web, a) })
}

// clientEnd is what a server sees of a client's Envoy.
func clientEnd(t *testing.T, m *harness.Mesh, a *harness.Proxy) {
	self := m.Enrol(harness.Workload{Name: "web-test", Group: "shop/web"})
	seen := make(chan *tls.ConnectionState, 1)
	config := &tls.Config{Certificates: []tls.Certificate{self.Certificate}, ClientAuth: tls.RequireAnyClientCert}
	l, err := tls.Listen("tcp", fmt.Sprintf("%s:%d", self.IP, httpPort), config)
	if err != nil {
		t.Fatal(err)
	}
	harness.ServeHTTP(t, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r.TLS:
		default:
		}
	}))
	m.Write("own.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: shop}
spec:
  hosts: [own.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: %s, serviceAccount: web}]
`, httpPort, self.IP))
	a.Client(httpPort).Want(t, "the test's own server is called", harness.Request{Host: "own.test"},
		harness.Status(http.StatusOK))
	chain := (<-seen).PeerCertificates
	if got, want := uri(chain[0]), "spiffe://cluster.local/ns/shop/sa/a"; got != want {
		t.Errorf("the client presents %q, want %q", got, want)
	}
	verified(t, self, chain)
	r, err := a.Report()
	if got := serialOf(chain[0]); err != nil || r.Serial != got {
		t.Errorf("the client presents the certificate %s, its agent tells of %s, error %v", got, r.Serial, err)
	}
}

// verified checks that a chain leads to the roots of an identity.
func verified(t *testing.T, id *harness.Identity, chain []*x509.Certificate) {
	t.Helper()
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: id.Roots, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("the certificate %s: %v", uri(chain[0]), err)
	}
}

// serverEnd is what a client sees of a server's Envoy, and the application behind it of clients.
func serverEnd(t *testing.T, m *harness.Mesh, web *server, a *harness.Proxy) {
	self := m.Enrol(harness.Workload{Name: "a-test", Group: "shop/a"})
	p, err := connect(t, fmt.Sprintf("%s:%d", web.IP, httpPort), meshTLS(&self.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	secure, ok := p.Conn.(*tls.Conn)
	if !ok {
		t.Fatal("the connection has no TLS")
	}
	chain := secure.ConnectionState().PeerCertificates
	if got, want := uri(chain[0]), "spiffe://cluster.local/ns/shop/sa/web"; got != want {
		t.Errorf("the server presents %q, want %q", got, want)
	}
	verified(t, self, chain)
	if status, body, err := p.get(); err != nil || status != http.StatusOK {
		t.Errorf("got %d %s, error %v", status, body, err)
	}
	other, err := harness.LoadIdentity(a.State)
	if err != nil {
		t.Fatal(err)
	}
	answers(t, a.Client(httpPort).Fresh(), "web-1")
	for i, id := range []*harness.Identity{self, other} {
		last := web.http.Last()
		xfcc := last[len(last)-2+i].Header.Get("X-Forwarded-Client-Cert")
		for _, want := range []string{"By=spiffe://cluster.local/ns/shop/sa/web", "Hash=" + digest(leafOf(t, id)),
			"URI=spiffe://cluster.local/ns/shop/sa/a"} {
			if !strings.Contains(xfcc, want) {
				t.Errorf("the application is told %q, want %q in it", xfcc, want)
			}
		}
	}
}

// tap forwards connections and keeps what goes through.
type tap struct {
	mu   sync.Mutex
	sent bytes.Buffer // guarded by mu: from client to server
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.Write(b)
}

// between listens at an address and forwards to another.
func (p *tap) between(t *testing.T, address, to string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				t.Errorf("tap: %v", err)
				_ = in.Close() // it has no endpoint
				return
			}
			t.Cleanup(func() { _, _ = in.Close(), out.Close() }) // either end may have cut it
			open.Go(func() { _, _ = io.Copy(out, io.TeeReader(in, p)) })
			open.Go(func() { _, _ = io.Copy(in, out) })
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// onTheWay is what passes between two Envoys on the network.
func onTheWay(t *testing.T, m *harness.Mesh, web *server, a *harness.Proxy) {
	ip, p := m.IP(), &tap{}
	p.between(t, fmt.Sprintf("%s:%d", ip, httpPort), fmt.Sprintf("%s:%d", web.IP, httpPort))
	m.Write("way.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: way, namespace: shop}
spec:
  hosts: [way.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: %s, serviceAccount: web}]
`, httpPort, ip))
	const secret = "nobody-reads-this"
	a.Client(httpPort).Want(t, "web through the tap", harness.Request{Host: "way.test",
		Header: map[string]string{"x-secret": secret}}, harness.From("web-1"))
	last := web.http.Last()
	if got := last[len(last)-1].Header.Get("x-secret"); got != secret {
		t.Errorf("the application got %q", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent.Bytes()
	if len(sent) < 3 || sent[0] != 0x16 || sent[1] != 3 { // a handshake record of TLS
		t.Errorf("the connection begins with % x, want a handshake", sent[:min(8, len(sent))])
	}
	for _, word := range []string{secret, "GET /", "way.test\r\n"} {
		if bytes.Contains(sent, []byte(word)) {
			t.Errorf("%q can be read on the way", word)
		}
	}
}

// Who may connect is a matter of the mode and of the certificate: each row an actual connection.
func TestWhoMayConnect(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	good := m.Enrol(harness.Workload{Name: "a-test", Group: "shop/a"})
	mesh := stolen(t, m)
	const a = "spiffe://cluster.local/ns/shop/sa/a"
	callers := []struct {
		name       string
		config     *tls.Config
		permissive bool // let in under PERMISSIVE
	}{
		{"plaintext", nil, true},
		{"no certificate", meshTLS(nil), false},
		{"foreign certificate", meshTLS(foreign(t).issue(t, a, -time.Minute, time.Hour)), false},
		{"other trust domain", meshTLS(mesh.issue(t, "spiffe://other.example/ns/shop/sa/a", -time.Minute, time.Hour)), false},
		{"trust domain as a prefix", meshTLS(mesh.issue(t, "spiffe://cluster.local.example/ns/shop/sa/a", -time.Minute, time.Hour)), false},
		{"expired", meshTLS(mesh.issue(t, a, -time.Hour, -time.Minute)), false},
		{"not valid yet", meshTLS(mesh.issue(t, a, time.Hour, 2*time.Hour)), false},
		{"control plane", meshTLS(mesh.issue(t, "spiffe://cluster.local/ashore/control-plane", -time.Minute, time.Hour)), false},
	}
	for _, name := range []string{"STRICT", "PERMISSIVE"} {
		m.Write("mode.yaml", mode(name))
		harness.Eventually(t, name+" takes effect", func() error {
			if _, err := request(t, fmt.Sprintf("%s:%d", web.IP, httpPort),
				nil); (err == nil) != (name == "PERMISSIVE") {
				return fmt.Errorf("a plaintext request ends with error %v", err)
			}
			return nil
		})
		for _, port := range []int{httpPort, tcpPort} {
			address := fmt.Sprintf("%s:%d", web.IP, port)
			if err := exchange(t, address, port, meshTLS(&good.Certificate)); err != nil {
				t.Errorf("%s, port %d: a workload is refused: %v", name, port, err)
			}
			if err := exchange(t, address, port, meshTLS(mesh.issue(t, a, -time.Minute, time.Hour))); err != nil {
				t.Errorf("%s, port %d: what the refused ones are like is refused itself: %v", name, port, err)
			}
			for _, c := range callers {
				err := exchange(t, address, port, c.config)
				if let := name == "PERMISSIVE" && c.permissive; let != (err == nil) {
					t.Errorf("%s, port %d, %s: let in %v, want %v: %v", name, port, c.name, err == nil, let, err)
				}
			}
		}
	}
	m.Write("mode.yaml", mode("DISABLE"))
	harness.Eventually(t, "DISABLE takes effect", func() error {
		if err := exchange(t, fmt.Sprintf("%s:%d", web.IP, httpPort), httpPort,
			meshTLS(&good.Certificate)); err == nil {
			return errors.New("TLS is still taken")
		}
		return exchange(t, fmt.Sprintf("%s:%d", web.IP, httpPort), httpPort, nil)
	})
}

// exchange says whether an application answers on a new connection.
func exchange(t *testing.T, address string, port int, config *tls.Config) error {
	t.Helper()
	p, err := connect(t, address, config)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // the peer may have cut it
	if port == tcpPort {
		return p.line()
	}
	status, body, err := p.get()
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, body)
	}
	return err
}

// serialOf returns the serial number of a certificate as ashorectl shows it.
func serialOf(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }
