package identity

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Where services listen in these tests: HTTP and TCP, and where the applications behind their
// proxies do.
const (
	httpPort, tcpPort       = 8080, 9000
	httpAppPort, tcpAppPort = 18080, 19000
)

// group is a WorkloadGroup of namespace shop whose members have the identity and the label app of
// its name.
func group(name string) string {
	return strings.ReplaceAll(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: NAME, namespace: shop}
spec:
  metadata: {labels: {app: NAME}}
  template: {serviceAccount: NAME}
`, "NAME", name)
}

// service is a service NAME.test of those who joined the group of that name, with HTTP and TCP, and
// what their proxies do.
func service(name string) string {
	return group(name) + strings.ReplaceAll(fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: NAME, namespace: shop}
spec:
  hosts: [NAME.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: %d, name: http, protocol: HTTP}
  - {number: %d, name: tcp, protocol: TCP}
  workloadSelector: {labels: {app: NAME}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: NAME, namespace: shop}
spec:
  workloadSelector: {labels: {app: NAME}}
  ingress:
  - {port: {number: %d, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:%d"}
  - {port: {number: %d, name: tcp, protocol: TCP}, defaultEndpoint: "0.0.0.0:%d"}
  egress:
  - hosts: ["~/*"]
`, httpPort, tcpPort, httpPort, httpAppPort, tcpPort, tcpAppPort), "NAME", name)
}

// mode is the PeerAuthentication of namespace shop.
func mode(mode string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: %s}}
`, mode)
}

// policy is an AuthorizationPolicy of namespace shop.
func policy(name, spec string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", name, spec)
}

// server is a workload with an HTTP and a TCP application behind its proxy.
type server struct {
	*harness.Proxy
	http *harness.Backend
}

// serve has a member of a group join, and starts its applications, which answer with its name.
func serve(t *testing.T, m *harness.Mesh, group, name string) *server {
	t.Helper()
	s := applications(t, m, name)
	s.Proxy = m.Join(harness.Workload{Name: name, Group: "shop/" + group, IP: s.ip()})
	return s
}

func applications(t *testing.T, m *harness.Mesh, name string) *server {
	t.Helper()
	ip := m.IP()
	harness.TCPEcho(t, name, fmt.Sprintf("%s:%d", ip, tcpAppPort))
	return &server{http: harness.NewBackend(t, name, fmt.Sprintf("%s:%d", ip, httpAppPort))}
}

func (s *server) ip() string {
	ip, _, _ := strings.Cut(s.http.Address, ":")
	return ip
}

// call is a request to web.
func call() harness.Request { return harness.Request{Host: "web.test"} }

// answers waits until a client's requests to web reach its application.
func answers(t *testing.T, client *harness.Client, from string) {
	t.Helper()
	client.Want(t, from+" answers", call(), harness.From(from))
}

// loads are steady calls of a client to web: on open connections and new ones, and raw TCP.
type loads []*harness.Load

// steady starts them once they succeed; name is that of the web that answers.
func steady(t *testing.T, client *harness.Proxy, name string) loads {
	t.Helper()
	kept := client.Client(httpPort)
	answers(t, kept, name)
	const interval = 25 * time.Millisecond
	return loads{
		harness.StartCalls(t, kept, call(), interval),
		harness.StartCalls(t, client.Client(httpPort).Fresh(), call(), interval),
		startLines(t, fmt.Sprintf("%s:%d", client.IP, tcpPort), name, interval),
	}
}

// more waits until each load made n more calls.
func (l loads) more(t *testing.T, n int) {
	t.Helper()
	want := make([]int, len(l))
	for i, one := range l {
		want[i] = one.Total() + n
	}
	harness.Eventually(t, "more calls", func() error {
		for i, one := range l {
			if got := one.Total(); got < want[i] {
				return fmt.Errorf("load %d made %d, want %d", i, got, want[i])
			}
		}
		return nil
	})
}

// clean ends them; not one call may have failed.
func (l loads) clean(t *testing.T) {
	t.Helper()
	for _, one := range l {
		one.Clean(t, 50)
	}
}

// startLines sends lines to an echo at address and wants each back: on one connection that stays
// open, and every tenth time on a new one too.
func startLines(t *testing.T, address, echo string, interval time.Duration) *harness.Load {
	kept, n := &line{address: address, echo: echo}, 0
	t.Cleanup(kept.close)
	ok := harness.Answer{Status: http.StatusOK, Seen: harness.Seen{Backend: echo}}
	return harness.Start(t, 1, interval, func() (harness.Answer, error) { // ends before the connection is closed
		if n++; n%10 != 0 {
			return ok, kept.exchange()
		}
		fresh := &line{address: address, echo: echo}
		defer fresh.close()
		return ok, errors.Join(kept.exchange(), fresh.exchange())
	})
}

// line is a connection with a TCPEcho; it is opened again after it failed.
type line struct {
	address, echo string
	conn          net.Conn
	in            *bufio.Reader
	opened        int
}

// exchange sends a line and waits for it.
func (c *line) exchange() error {
	err := c.try()
	if err != nil {
		c.close()
		return fmt.Errorf("connection %d: %w", c.opened, err)
	}
	return nil
}

func (c *line) try() error {
	if c.conn == nil {
		c.opened++
		conn, err := net.DialTimeout("tcp", c.address, 20*time.Second)
		if err != nil {
			return err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
		if err := c.want(c.echo); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
	}
	if _, err := fmt.Fprintln(c.conn, "hello"); err != nil {
		return err
	}
	return c.want("hello")
}

func (c *line) want(text string) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	got, err := c.in.ReadString('\n')
	if err == nil && got != text+"\n" {
		err = fmt.Errorf("got %q, want %q", got, text)
	}
	return err
}

func (c *line) close() {
	if c.conn != nil {
		_ = c.conn.Close() // the peer may have cut it
		c.conn = nil
	}
}
