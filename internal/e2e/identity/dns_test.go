package identity

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// The agent of a workload answers for names of the mesh, and follows changes. When it starts
// without a control plane, it uses its copy on disk.
func TestDNS(t *testing.T) {
	t.Parallel()
	entry := func(address string) string {
		return strings.Replace(service("web"), "  location:", "  addresses: ["+address+"]\n  location:", 1)
	}
	m := harness.New(t, map[string]string{"web.yaml": entry("10.99.0.1"), "a.yaml": group("a")}, harness.Secure(""))
	p := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	for _, network := range []string{"udp", "tcp"} {
		resolves(t, p, network, "10.99.0.1")
	}
	p.WantLine("dns", "names of the mesh: 1")
	m.Ashored.Kill()
	p.Stop()
	p.Run()
	resolves(t, p, "udp", "10.99.0.1")
	m.Write("web.yaml", entry("10.99.0.2"))
	m.Start()
	resolves(t, p, "udp", "10.99.0.2")
}

// resolves waits until the agent of a workload has that address for web.test.
func resolves(t *testing.T, p *harness.Proxy, network, want string) {
	t.Helper()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(p.IP, "15053"))
	}}
	harness.Eventually(t, "web.test is "+want, func() error {
		got, err := r.LookupHost(t.Context(), "web.test.")
		if err == nil && fmt.Sprint(got) != "["+want+"]" {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}
