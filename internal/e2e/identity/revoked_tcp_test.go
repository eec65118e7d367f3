package identity

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// raw opens a connection of TCP to a server as a workload does that has joined: from its address, with its certificate.
func raw(t *testing.T, from *harness.Proxy, to *server) (*peer, error) {
	t.Helper()
	id, err := harness.LoadIdentity(from.State)
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{Config: meshTLS(&id.Certificate), NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.IP)}, Timeout: 10 * time.Second}}
	conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", to.IP, tcpPort))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have cut it
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	p := &peer{Conn: conn, in: bufio.NewReader(conn)}
	return p, p.line()
}

// Where agents may end sockets, a raw connection of a revoked workload does not last until Envoy has drained it, the default
// 45 s, and those of others do.
func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"), "mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	web.WantLine("configuration", "ok live; raw TCP of a revoked workload ends")
	if r, err := web.Report(); err != nil || !strings.Contains(r.Line("configuration"), "at once") {
		t.Skipf("agents may not end sockets here (%v): CAP_NET_ADMIN, or the kernel's CONFIG_INET_DIAG_DESTROY, is missing: %q", err, r.Line("configuration"))
	}
	thief, other := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}), m.Join(harness.Workload{Name: "a-2", Group: "shop/a"})
	var open [2]*peer
	for i, from := range []*harness.Proxy{thief, other} {
		harness.Eventually(t, "a raw connection is served", func() (err error) {
			open[i], err = raw(t, from, web)
			return err
		})
	}
	command(t, m, "workload", "revoke", "shop/a-1")
	begin := time.Now()
	wait(t, 30*time.Second, "the raw connection ends", func() error {
		if open[0].line() == nil {
			return errors.New("it is served still")
		}
		return nil
	})
	t.Logf("the raw connection of the revoked workload ended %v after the command", time.Since(begin).Round(time.Millisecond))
	if err := open[1].line(); err != nil {
		t.Errorf("the raw connection of another workload: %v", err)
	}
	if !strings.Contains(web.Log(), "connections with a revoked workload were ended") {
		t.Error("the agent's log does not tell")
	}
	harness.Eventually(t, "a new one is refused", func() error {
		if _, err := raw(t, thief, web); err == nil {
			return errors.New("it is served")
		}
		return nil
	})
	if err := open[1].line(); err != nil {
		t.Errorf("later, the raw connection of another workload: %v", err)
	}
}
