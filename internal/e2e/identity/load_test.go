package identity

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// short are settings with certificates of a minute and no grace time.
const short = "ca: {validity: 1m, grace: 0s}"

// busy is a mesh under load: a client a-1 and web-1, whose certificates live for a minute.
func busy(t *testing.T, settings string) (m *harness.Mesh, web *server, a *harness.Proxy, all loads) {
	t.Helper()
	m = harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"), "mode.yaml": mode("STRICT")},
		harness.Secure(settings))
	web = serve(t, m, "web", "web-1")
	a = m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	return m, web, a, steady(t, a, "web-1")
}

// presented is the certificate that a server's Envoy presents on a new connection.
func presented(t *testing.T, s *server) (*x509.Certificate, error) {
	t.Helper()
	var leaf *x509.Certificate
	config := meshTLS(nil)
	config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) (err error) {
		leaf, err = x509.ParseCertificate(raw[0])
		return err
	}
	p, err := connect(t, fmt.Sprintf("%s:%d", s.IP, httpPort), config)
	if err == nil {
		_ = p.Close() // it asks for a certificate that the test does not have
	}
	if leaf == nil {
		return nil, fmt.Errorf("nothing is presented: %w", err)
	}
	return leaf, nil
}

// serial is that of the certificate that a server's Envoy presents.
func serial(t *testing.T, s *server) string {
	t.Helper()
	var leaf *x509.Certificate
	harness.Eventually(t, "a certificate is presented", func() (err error) {
		leaf, err = presented(t, s)
		return err
	})
	return serialOf(leaf)
}

// renewed waits until both ends use another certificate than the one given, and the Envoys present
// it.
func renewed(t *testing.T, web *server, a *harness.Proxy, webSerial, aSerial string) {
	t.Helper()
	harness.Eventually(t, "the certificates are renewed", func() error {
		r, err := a.Report()
		if err != nil {
			return err
		}
		leaf, err := presented(t, web)
		if err != nil {
			return err
		}
		if now := serialOf(leaf); now == webSerial || r.Serial == aSerial {
			return fmt.Errorf("web presents %s, and a has %s", now, r.Serial)
		}
		return nil
	})
}

// ashored is killed, started, stopped and started again, and certificates are renewed meanwhile and
// after it: not one call fails. What was configured while it was away takes effect.
func TestRestartsAndRenewalUnderLoad(t *testing.T) {
	t.Parallel()
	m, web, a, all := busy(t, short)
	webSerial := serial(t, web)
	r, err := a.Report()
	if err != nil {
		t.Fatal(err)
	}
	all.more(t, 20)
	m.Ashored.Kill()
	all.more(t, 40)
	m.Start()
	connected(t, m, 2)
	all.more(t, 40)
	m.Ashored.Stop()
	all.more(t, 160) // longer than a proxy may be away while ashored runs
	m.Write("c.yaml", strings.Replace(service("c"), fmt.Sprintf("  - {number: %d, name: tcp, protocol: TCP}\n",
		tcpPort), "", 1))
	m.Start()
	connected(t, m, 2)
	serve(t, m, "c", "c-1")
	a.Client(httpPort).Want(t, "what was configured meanwhile", harness.Request{Host: "c.test"}, harness.From("c-1"))
	renewed(t, web, a, webSerial, r.Serial)
	all.more(t, 40)
	all.clean(t)
}

// connected waits until as many proxies are.
func connected(t *testing.T, m *harness.Mesh, n int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d proxies are connected", n), func() error {
		s, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err == nil && len(s.Proxies) != n {
			err = fmt.Errorf("%d are", len(s.Proxies))
		}
		return err
	})
}

// The root is rotated, and its end is not forced. ashored is killed in the middle, and no
// call fails. In the end only the new root is trusted, and who has nothing but a certificate of the
// old one is out.
func TestRootRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	m, web, a, all := busy(t, short)
	old := stolen(t, m).issue(t, "spiffe://cluster.local/ns/shop/sa/a", -time.Minute, time.Hour)
	if status, err := request(t, fmt.Sprintf("%s:%d", web.IP, httpPort), meshTLS(old)); err != nil ||
		status != http.StatusOK {
		t.Fatalf("a certificate of the root in use gets %d, error %v", status, err)
	}
	first := authority(t, m)
	out, code, err := harness.Command("ashorectl", "--socket", m.Socket(), "ca", "rotate", "--reason", "test")
	if err != nil || code != 0 {
		t.Fatalf("ashorectl ca rotate: exit code %d, error %v:\n%s", code, err, out)
	}
	rotated(t, m, "begin")
	m.Ashored.Kill()
	m.Start()
	rotated(t, m, "retire")
	if e := m.Audited(audit.CARotate, "step:retire"); e.Details["forced"] != "" {
		t.Errorf("a step is forced: %v", e.Details)
	}
	last := authority(t, m)
	if len(last.Roots) != 1 || last.Roots[0].Root == first.Roots[0].Root || !last.Rotation.Since.IsZero() {
		t.Errorf("after the rotation the roots are %+v, rotation %+v; before they were %+v", last.Roots, last.Rotation,
			first.Roots)
	}
	oneRoot(t, a, last.Roots[0].Root)
	oneRoot(t, web.Proxy, last.Roots[0].Root)
	all.more(t, 40)
	if status, err := request(t, fmt.Sprintf("%s:%d", web.IP, httpPort), meshTLS(old)); err == nil {
		t.Errorf("a certificate of the old root gets %d", status)
	}
	fresh := m.Join(harness.Workload{Name: "a-2", Group: "shop/a"})
	answers(t, fresh.Client(httpPort), "web-1")
	all.clean(t)
}

// rotated waits until a step of a rotation is done.
func rotated(t *testing.T, m *harness.Mesh, step string) {
	t.Helper()
	wait(t, 2*time.Minute, "step "+step, func() error {
		now := authority(t, m)
		var done []string
		events, err := admin.Send(context.Background(), m.Admin, admin.CallAudit, admin.AuditQuery{Lines: 1000})
		for _, e := range events {
			if e.Action == audit.CARotate && e.Outcome == audit.OK {
				done = append(done, e.Details["step"])
			}
		}
		if err == nil && !slices.Contains(done, step) {
			err = fmt.Errorf("done are %v; waited for: %+v", done, now.Rotation.Waiting)
		}
		return err
	})
}

// A machine is away while the root is rotated, knows the old root alone, and its certificate is of
// the old one. When it comes back it trusts the control plane and peers of the new root, and
// receives what changed.
func TestAwayDuringRotation(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	a := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	a.Kill()
	first := authority(t, m).Roots[0].Root
	command(t, m, "ca", "rotate", "--reason", "test")
	rotated(t, m, "begin")
	if w := authority(t, m).Rotation.Waiting; !slices.ContainsFunc(w,
		func(w admin.Waiting) bool { return w.Name == "shop/a-1" }) {
		t.Errorf("nobody waits for the machine that is away: %+v", w)
	}
	if now := authority(t, m); now.Signer.Root == first {
		t.Errorf("the old root signs: %+v", now)
	}
	web := serve(t, m, "web", "web-1")
	leaf, err := presented(t, web)
	if err != nil {
		t.Fatal(err)
	}
	a.Run()
	a.Ready()
	a.WantLine("control plane", "ok")
	a.WantLine("roots", "ok", "2: ")
	answers(t, a.Client(httpPort), "web-1")
	own, err := harness.LoadIdentity(a.State)
	if err != nil {
		t.Fatal(err)
	}
	if leafOf(t, own).Issuer.String() == leaf.Issuer.String() {
		t.Errorf("both certificates are of %s: the test proves nothing", leaf.Issuer)
	}
}

// oneRoot waits until a workload trusts that root alone.
func oneRoot(t *testing.T, p *harness.Proxy, root string) {
	t.Helper()
	p.WantLine("roots", "ok", "1: "+root[:19])
}

func authority(t *testing.T, m *harness.Mesh) admin.Authority {
	t.Helper()
	var out admin.Authority
	harness.Eventually(t, "ca show", func() (err error) {
		out, err = admin.Send(context.Background(), m.Admin, admin.CallAuthority, admin.None{})
		return err
	})
	return out
}

// wait is harness.Eventually for what takes its time by design.
func wait(t *testing.T, long time.Duration, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %s: %v", what, long, err)
}

// plugged is an authority in Istio's four files.
type plugged struct {
	root   *ca.Signer
	signer *x509.Certificate
	key    []byte
}

func newPlugged(t *testing.T, name string) plugged {
	t.Helper()
	root := newRoot(t, name)
	key := ca.NewKey()
	signer, err := root.NewIntermediate(name+" below", 60*24*time.Hour,
		key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := ca.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return plugged{root: root, signer: signer, key: text}
}

// write puts it in place, as those tools do that swap a link; roots are those that are trusted.
func (p plugged) write(t *testing.T, link string, roots ...*ca.Signer) {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(link), "set")
	if err != nil {
		t.Fatal(err)
	}
	var trusted []*x509.Certificate
	for _, r := range roots {
		trusted = append(trusted, r.Cert)
	}
	for name, text := range map[string][]byte{
		"ca-cert.pem": ca.EncodeCertificates(p.signer), "ca-key.pem": p.key, "cert-chain.pem": ca.EncodeCertificates(p.signer, p.root.Cert),
		"root-cert.pem": ca.EncodeCertificates(trusted...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
}

// A plugged-in authority is replaced by one of another root, in the three swaps of the
// documentation: not one call fails. A set that does not match is refused, and the previous one
// stays in use.
func TestPluggedAuthoritySwappedUnderLoad(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "plugged")
	one, two := newPlugged(t, "one"), newPlugged(t, "two")
	one.write(t, link, one.root)
	m, web, a, all := busy(t, fmt.Sprintf("ca: {validity: 1m, grace: 0s, plugged: %s}", link))
	both := func(p *harness.Proxy) { p.WantLine("roots", "ok", "2: ") }

	bad := two
	bad.key = one.key
	bad.write(t, link, two.root)
	m.WantProblem("those that were read before stay in use")
	all.more(t, 20)

	one.write(t, link, one.root, two.root)
	both(a)
	both(web.Proxy)

	two.write(t, link, one.root, two.root)
	wait(t, 2*time.Minute, "both certificates are of the second authority", func() error {
		leaf, err := presented(t, web)
		if err != nil {
			return err
		}
		own, err := harness.LoadIdentity(a.State)
		if err != nil {
			return err
		}
		for _, c := range []*x509.Certificate{leaf, leafOf(t, own)} {
			if err := c.CheckSignatureFrom(two.signer); err != nil {
				return fmt.Errorf("%s: %w", uri(c), err)
			}
		}
		return nil
	})
	all.more(t, 40)

	two.write(t, link, two.root)
	oneRoot(t, a, ca.RootID(two.root.Cert))
	oneRoot(t, web.Proxy, ca.RootID(two.root.Cert))
	all.more(t, 40)
	all.clean(t)
}
