package identity

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// plainService is a service whose workloads have no Sidecar: of HTTP at a port, and of TCP at
// another one.
func plainService(name string) string {
	text, _, _ := strings.Cut(service(name), "---\napiVersion: networking.istio.io/v1\nkind: Sidecar")
	return text
}

// Without a probe a workload is an endpoint at those of its ports that are served, and at none
// while its application is stopped.
func TestPortsAreChecked(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a")}, harness.Secure(""))
	ip := m.IP()
	p := m.Join(harness.Workload{Name: "web-1", Group: "shop/web", IP: ip})
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(httpPort)
	unwell(t, m, "shop/web-1", "connection refused")
	refuses(t, client, "an application that was never started")
	app := harness.NewBackend(t, "web-1", fmt.Sprintf("%s:%d", ip, httpAppPort))
	answers(t, client, "web-1")
	p.WantLine("registration", "healthy; ports 8080, 9000 checked; not served: 9000")
	if err := app.Drain(); err != nil {
		t.Fatal(err)
	}
	refuses(t, client, "an application that was stopped")
	unwell(t, m, "shop/web-1", "connection refused")
}

// A workload without interception and without a Sidecar: Envoy listens for an application that
// listens on loopback, with mutual TLS; one that has the workload's address itself gets plaintext,
// and a problem says so. A caller on the same machine is refused like others while the application
// is stopped.
func TestLoopbackApplication(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": plainService("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	port := testport.Free(t)
	m.Write("web.yaml", strings.ReplaceAll(plainService("web"),
		fmt.Sprintf("number: %d, name: http, protocol: HTTP", httpPort),
		fmt.Sprintf("number: %d, targetPort: %d, name: http, protocol: HTTP", httpPort, port)))
	ip := m.IP()
	app := harness.NewBackend(t, "web-1", fmt.Sprintf("127.0.0.1:%d", port))
	p := m.Join(harness.Workload{Name: "web-1", Group: "shop/web", IP: ip})
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(httpPort)
	answers(t, client, "web-1")
	local := p.Client(httpPort)
	answers(t, local, "web-1")
	if seen := app.Last(); len(seen) == 0 || !strings.Contains(fmt.Sprint(seen),
		"spiffe://cluster.local/ns/shop/sa/a") {
		t.Errorf("the caller's identity is not known behind the listener: %+v", seen)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/", ip, port), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := http.DefaultClient.Do(q); err == nil {
		t.Errorf("plaintext is answered: %s", r.Status)
		_ = r.Body.Close()
	}
	p.WantLine("registration", "warn ", "not served: 9000")
	if err := app.Drain(); err != nil {
		t.Fatal(err)
	}
	refuses(t, client, "the application stopped")
	refuses(t, local, "the application stopped, to a caller on its machine")

	harness.Eventually(t, "Envoy leaves the port to the application", func() error {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, port))
		if err != nil {
			return err
		}
		return l.Close()
	})
	own := harness.NewBackend(t, "web-1", fmt.Sprintf("%s:%d", ip, port))
	answers(t, client, "web-1")
	p.WantLine("interception", fmt.Sprintf("warn connections to port %d reach the application past Envoy", port))
	if strings.Contains(fmt.Sprint(own.Last()), "spiffe://") {
		t.Errorf("what has no listener gets %+v", own.Last())
	}
}
