package identity

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// A revocation reaches a connection whose certificate has ended: Envoy keeps it, and the workload
// has renewed since.
func TestRevokedAfterItsCertificateEnded(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(short))
	web := serve(t, m, "web", "web-1")
	first := m.Enrol(harness.Workload{Name: "a-1", Group: "shop/a"})
	bystander := m.Enrol(harness.Workload{Name: "a-2", Group: "shop/a"})
	let(t, web, first)
	open, other := hold(t, web, first), hold(t, web, bystander)
	end := leafOf(t, first).NotAfter
	time.Sleep(time.Until(end.Add(-20 * time.Second)))
	next, err := renew(t.Context(), m.TLS(), &first.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(end.Add(time.Second)) { // it is in use all the time
		if status, _, err := open.http.get(); err != nil || status != http.StatusOK {
			t.Fatalf("a request on the open connection gets %d, error %v", status, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if _, err := renew(t.Context(), m.TLS(), next); err != nil { // the ledger puts the ended one aside
		t.Fatal(err)
	}
	if _, err := request(t, fmt.Sprintf("%s:%d", web.IP, httpPort), meshTLS(&first.Certificate)); err == nil {
		t.Error("a new connection with the ended certificate is taken")
	}
	const name = "shop/a-1"
	command(t, m, "workload", "revoke", name)
	begin := time.Now()
	took := open.refused(t).Sub(begin)
	t.Logf("the open connection is refused %v after the command", took.Round(time.Millisecond))
	if took > 5*time.Second { // a second is meant; the machine is shared
		t.Errorf("it takes %v", took)
	}
	if status, _, err := other.http.get(); err != nil || status != http.StatusOK {
		t.Errorf("a bystander's request gets %d, error %v", status, err)
	}
	command(t, m, "workload", "restore", name)
	harness.Eventually(t, "it is let in again", func() error {
		if status, _, err := open.http.get(); err != nil || status != http.StatusOK {
			return fmt.Errorf("a request gets %d, error %v", status, err)
		}
		return nil
	})
}
