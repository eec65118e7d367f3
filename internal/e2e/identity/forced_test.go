package identity

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// A rotation is forced to its end within seconds, as after a theft: machines with certificates of a
// day renew by themselves, and none has to join again.
func TestRotationForcedToItsEnd(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	web := serve(t, m, "web", "web-1")
	a := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	answers(t, a.Client(httpPort), "web-1")
	time.Sleep(time.Minute) // a new certificate is not suspected
	first := authority(t, m).Roots[0].Root
	command(t, m, "ca", "rotate", "--reason", "test")
	rotated(t, m, "begin")
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		p.WantLine("roots", "ok", "2: ")
	}
	command(t, m, "ca", "rotate", "--force", "--reason", "test")
	last := authority(t, m)
	if len(last.Roots) != 1 || last.Roots[0].Root == first {
		t.Fatalf("after the rotation the roots are %+v", last.Roots)
	}
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		p.WantLine("control plane", "ok")
		oneRoot(t, p, last.Roots[0].Root)
		p.WantLine("certificate", "ok")
	}
	m.Audited(audit.CertificateIssue, "how:certificate")
	answers(t, a.Client(httpPort), "web-1")
}

// The second of two plugged-in authorities is trusted alone too early: machines renew by
// themselves.
func TestPluggedAuthoritySwappedEarly(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "plugged")
	one, two := newPlugged(t, "one"), newPlugged(t, "two")
	one.write(t, link, one.root)
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(fmt.Sprintf("ca: {plugged: %s}", link)))
	web := serve(t, m, "web", "web-1")
	a := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	answers(t, a.Client(httpPort), "web-1")
	time.Sleep(time.Minute) // a new certificate is not suspected
	one.write(t, link, one.root, two.root)
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		p.WantLine("roots", "ok", "2: ")
	}
	two.write(t, link, one.root, two.root)
	wait(t, time.Minute, "the second authority signs", func() error {
		if now := authority(t, m); now.Signer.Root != ca.RootID(two.root.Cert) {
			return fmt.Errorf("%s does", now.Signer.Root)
		}
		return nil
	})
	two.write(t, link, two.root)
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		oneRoot(t, p, ca.RootID(two.root.Cert))
		p.WantLine("control plane", "ok")
		p.WantLine("certificate", "ok")
	}
	m.Audited(audit.CertificateIssue, "how:certificate")
	answers(t, a.Client(httpPort), "web-1")
}
