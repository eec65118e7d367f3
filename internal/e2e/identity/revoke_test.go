package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// held are connections of a caller that stay open with a server.
type held struct {
	server    *server
	http, tcp *peer
}

// hold opens them.
func hold(t *testing.T, s *server, id *harness.Identity) held {
	t.Helper()
	h := held{server: s}
	for port, p := range map[int]**peer{httpPort: &h.http, tcpPort: &h.tcp} {
		conn, err := connect(t, fmt.Sprintf("%s:%d", s.IP, port), meshTLS(&id.Certificate))
		if err != nil {
			t.Fatal(err)
		}
		*p = conn
	}
	if status, _, err := h.http.get(); err != nil || status != http.StatusOK {
		t.Fatalf("a request gets %d, error %v", status, err)
	}
	if err := h.tcp.line(); err != nil {
		t.Fatal(err)
	}
	return h
}

// command runs ashorectl and wants it to end well.
func command(t *testing.T, m *harness.Mesh, args ...string) string {
	t.Helper()
	out, code, err := harness.Command("ashorectl", append([]string{"--socket", m.Socket()}, args...)...)
	if err != nil || code != 0 {
		t.Fatalf("ashorectl %s: exit code %d, error %v:\n%s", strings.Join(args, " "), code, err, out)
	}
	return out
}

// refused waits until the next request on an open connection gets 403, and returns when it did.
func (h held) refused(t *testing.T) time.Time {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		status, _, err := h.http.get()
		switch {
		case err != nil:
			t.Fatalf("%s: the open connection is cut: %v", h.server.http.Name, err)
		case status == http.StatusForbidden:
			return time.Now()
		case status != http.StatusOK:
			t.Fatalf("%s: a request gets %d", h.server.http.Name, status)
		case time.Now().After(end):
			t.Fatalf("%s: requests are answered 30 s after the revocation", h.server.http.Name)
		}
		time.Sleep(time.Millisecond)
	}
}

// out says why a caller is not refused by a server, on new connections; nil when it is.
func out(t *testing.T, s *server, id *harness.Identity) error {
	t.Helper()
	if status, err := request(t, fmt.Sprintf("%s:%d", s.IP, httpPort), meshTLS(&id.Certificate)); err == nil &&
		status != http.StatusForbidden {
		return fmt.Errorf("a request to %s gets %d, want 403", s.http.Name, status)
	}
	if err := exchange(t, fmt.Sprintf("%s:%d", s.IP, tcpPort), tcpPort, meshTLS(&id.Certificate)); err == nil {
		return fmt.Errorf("a TCP connection to %s is served", s.http.Name)
	}
	return nil
}

// let waits until a caller is served on new connections.
func let(t *testing.T, s *server, id *harness.Identity) {
	t.Helper()
	harness.Eventually(t, "the caller is let in by "+s.http.Name, func() error {
		return errors.Join(
			exchange(t, fmt.Sprintf("%s:%d", s.IP, httpPort), httpPort, meshTLS(&id.Certificate)),
			exchange(t, fmt.Sprintf("%s:%d", s.IP, tcpPort), tcpPort, meshTLS(&id.Certificate)))
	})
}

// A workload that is revoked is out: with peers that it had connections with, with new ones, with
// the control plane, and as an endpoint. So it stays when ashored and the agents are restarted,
// until it is restored.
func TestRevokedWorkload(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	var web []*server
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		s := applications(t, m, name)
		s.Proxy = m.Join(harness.Workload{Name: name, Group: "shop/web", IP: s.ip()})
		web = append(web, s)
	}
	a := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	client := a.Client(httpPort)
	for _, s := range web {
		answers(t, client, s.http.Name)
	}
	thief, err := harness.LoadIdentity(web[2].State) // all that web-3 has is in the wrong hands
	if err != nil {
		t.Fatal(err)
	}
	peers := []held{hold(t, web[0], thief), hold(t, web[1], thief)}
	bystander := m.Enrol(harness.Workload{Name: "a-2", Group: "shop/a"})
	others := []held{hold(t, web[0], bystander), hold(t, web[1], bystander)}

	command(t, m, "workload", "revoke", "shop/web-3", "--reason", "stolen")
	begin := time.Now()
	for _, p := range peers {
		t.Logf("%s refuses the revoked workload %v after the command", p.server.http.Name,
			p.refused(t).Sub(begin).Round(time.Millisecond))
	}
	m.Audited(audit.WorkloadRevoke, "shop/web-3", "stolen")
	for _, p := range peers {
		harness.Eventually(t, "new connections are refused", func() error { return out(t, p.server, thief) })
	}
	for _, p := range others {
		if status, _, err := p.http.get(); err != nil || status != http.StatusOK {
			t.Errorf("a bystander's open connection with %s: %d, error %v", p.server.http.Name, status, err)
		}
		if err := p.tcp.line(); err != nil {
			t.Errorf("a bystander's open raw connection with %s: %v", p.server.http.Name, err)
		}
		let(t, p.server, bystander)
	}
	revokedEverywhere(t, m, web, a, thief)

	m.Ashored.Kill()
	m.Start()
	web[0].Kill()
	web[0].Run()
	web[0].Ready()
	answers(t, client, "web-1")
	for _, s := range web[:2] {
		if err := out(t, s, thief); err != nil {
			t.Errorf("after restarts: %v", err)
		}
	}
	revokedEverywhere(t, m, web, a, thief)

	command(t, m, "workload", "restore", "shop/web-3", "--reason", "found")
	m.Audited(audit.WorkloadRestore, "shop/web-3")
	for _, s := range web[:2] {
		let(t, s, thief)
	}
	answers(t, client, "web-3")
	web[2].WantLine("control plane", "ok")
	if _, err := renew(t.Context(), m.TLS(), &thief.Certificate); err != nil {
		t.Errorf("a restored workload does not renew: %v", err)
	}
}

// revokedEverywhere checks the other effects of web-3's revocation: its stream ends, it cannot
// renew, and it is no endpoint.
func revokedEverywhere(t *testing.T, m *harness.Mesh, web []*server, a *harness.Proxy, thief *harness.Identity) {
	t.Helper()
	web[2].WantLine("control plane", "bad", "none since")
	status, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Proxies {
		if strings.Contains(p.ID, "~web-3.") {
			t.Errorf("%s is connected", p.ID)
		}
	}
	if c, err := renew(t.Context(), m.TLS(), &thief.Certificate); err == nil {
		t.Errorf("it renews: %s", uri(c.Leaf))
	}
	m.Audited(audit.CertificateRefuse, serialOf(leafOf(t, thief)), "revoked")
	client := a.Client(httpPort)
	harness.Eventually(t, "web-3 is no endpoint", func() error {
		for range 10 {
			if got, err := client.Do(call()); err != nil || got.Seen.Backend == "web-3" || got.Status != http.StatusOK {
				return fmt.Errorf("a request gets %d from %q, error %v", got.Status, got.Seen.Backend, err)
			}
		}
		return nil
	})
}

// What can be revoked, and whom that concerns: each row with open connections of everybody.
func TestRevokedByIdentityAndName(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a") + group("b"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	names := []string{"a-1", "a-2", "b-1"}
	ids := map[string]*harness.Identity{}
	for _, name := range names {
		ids[name] = m.Enrol(harness.Workload{Name: name, Group: "shop/" + name[:1]})
	}
	for _, tc := range []struct{ what, concerns string }{
		{"spiffe://cluster.local/ns/shop/sa/a", "a-1 a-2"},
		{"shop/a-2", "a-2"},
		{"shop/b-1", "b-1"},
	} {
		open := map[string]held{}
		for _, name := range names {
			open[name] = hold(t, web, ids[name])
		}
		command(t, m, "workload", "revoke", tc.what)
		begin := time.Now()
		for _, name := range strings.Fields(tc.concerns) {
			t.Logf("%s: %s is refused %v after the command", tc.what, name,
				open[name].refused(t).Sub(begin).Round(time.Millisecond))
		}
		for _, name := range names {
			if strings.Contains(tc.concerns, name) {
				harness.Eventually(t, name+" is refused", func() error { return out(t, web, ids[name]) })
				if _, err := renew(t.Context(), m.TLS(), &ids[name].Certificate); err == nil {
					t.Errorf("%s: %s renews", tc.what, name)
				}
				continue
			}
			if status, _, err := open[name].http.get(); err != nil || status != http.StatusOK {
				t.Errorf("%s: a request of %s gets %d, error %v", tc.what, name, status, err)
			}
		}
		command(t, m, "workload", "restore", tc.what)
		for _, name := range names {
			let(t, web, ids[name])
			if status, _, err := open[name].http.get(); err != nil || status != http.StatusOK {
				t.Errorf("%s: after it was restored, a request of %s on the open connection gets %d, error %v", tc.what,
					name, status, err)
			}
		}
	}
}
