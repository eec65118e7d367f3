package identity

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// raw opens a connection of TCP to a server as a workload does that has joined: from its address, with its certificate.
func raw(t *testing.T, from *harness.Proxy, to *server) (*peer, error) {
	t.Helper()
	p, err := silent(t, from, to)
	if err != nil {
		return nil, err
	}
	return p, p.line()
}

// silent opens one on which nothing is said yet.
func silent(t *testing.T, from *harness.Proxy, to *server) (*peer, error) {
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
	return &peer{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// listens says nothing on a new connection until it ends. Errors: it goes on, or the server is heard.
func listens(t *testing.T, from *harness.Proxy, to *server) error {
	t.Helper()
	p, err := silent(t, from, to)
	if err != nil {
		return nil // it has ended already
	}
	if err := p.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	begin := time.Now()
	n, err := io.Copy(io.Discard, p.in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d bytes of the server were heard", n)
	}
	t.Logf("a new connection on which nothing is said ended after %v", time.Since(begin).Round(time.Millisecond))
	return nil
}

// Where agents may end sockets, a raw connection of a revoked workload does not last until Envoy has drained it, the default
// 45 s, and those of others do.
func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"), "mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	web.WantLine("configuration", "ok live; raw TCP of a revoked workload ends")
	if strings.Contains(web.Log(), "this agent may not end sockets") {
		t.Skip("agents may not end sockets here: CAP_NET_ADMIN, or the kernel's CONFIG_INET_DIAG_DESTROY, is missing")
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
	harness.Eventually(t, "the agent's log tells", func() error {
		if !strings.Contains(web.Log(), "connections with a revoked workload were ended") {
			return errors.New("it does not")
		}
		return nil
	})
	harness.Eventually(t, "a new one is refused", func() error {
		if _, err := raw(t, thief, web); err == nil {
			return errors.New("it is served")
		}
		return nil
	})
	for range 3 {
		if err := listens(t, thief, web); err != nil {
			t.Errorf("a new connection on which nothing is said: %v", err)
		}
		time.Sleep(3 * time.Second) // so that nothing is under way because of the command
	}
	if err := open[1].line(); err != nil {
		t.Errorf("later, the raw connection of another workload: %v", err)
	}
	thief.Stop()
	heir := m.Join(harness.Workload{Name: "a-3", Group: "shop/a", IP: thief.IP})
	harness.Eventually(t, "raw connections of who has the address now last", func() error {
		p, err := raw(t, heir, web)
		if err != nil {
			return err
		}
		time.Sleep(3 * time.Second) // in which they would be ended
		return p.line()
	})
}
