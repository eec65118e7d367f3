package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// joining is what a workload joins p with, in a folder of its own.
func joining(t *testing.T, p *fakePlane) JoinConfig {
	t.Helper()
	s := Default()
	s.State = stateFolder(t)
	s.Workload.Name = "web-1"
	s.Workload.Labels = map[string]string{"version": "v2"}
	s.XDS.Addresses = []string{p.addr}
	return JoinConfig{Settings: s, Group: "shop/web", Hash: ca.RootID(p.mesh.root.Cert), Token: testToken,
		Log: testlog.New(t)}
}

// A workload that joins has a key that only its user can read. It has the issued certificate, the
// roots, and the settings to run with. The token was sent once, to the control plane that the hash
// names.
func TestJoin(t *testing.T) {
	t.Parallel()
	p := startPlane(t, newMesh(t, "cluster.local"), "127.0.15.2:0")
	c := joining(t, p)
	r, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Already || r.Running != 0 || r.Identity.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("result %+v", r)
	}
	got := p.requests()
	if len(got) != 1 || got[0].token != testToken || got[0].workload != "web-1" || got[0].group != "shop/web" ||
		got[0].key != keyHash(r.Identity.Key) {
		t.Errorf("requests %+v", got)
	}
	id, joined, err := store{c.Settings.State}.load()
	if err != nil || !id.Leaf().Equal(r.Identity.Leaf()) || joined.Group != "shop/web" || len(id.Chain) != 2 ||
		id.Roots.ID != ca.NewBundle(p.mesh.root.Cert).ID {
		t.Fatalf("on disk: %+v, %+v, %v", id, joined, err)
	}
	for _, name := range []string{identityFile, rootsFile} {
		info, err := os.Stat(filepath.Join(c.Settings.State, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Settings.State, nextKeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key of the request is still there: %v", err)
	}
	s := Default()
	text, err := os.ReadFile(JoinedSettings(c.Settings.State))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strictyaml.Decode("own", text, &s); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	w := s.Workload
	if w.Name != "web-1" || w.Namespace != "shop" || w.Group != "web" || len(w.Addresses) != 1 ||
		!strings.HasPrefix(w.Addresses[0], "127.") || w.Labels["version"] != "v2" || s.XDS.Addresses[0] != p.addr {
		t.Errorf("settings to run with:\n%s", text)
	}
	if strings.Contains(string(text), "token") || strings.Contains(string(text), "drainTime") {
		t.Errorf("the settings hold a token, or defaults:\n%s", text)
	}
}

// A line that is pasted twice joins once; one whose answer was lost works again, with the same key.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	p := startPlane(t, newMesh(t, "cluster.local"), "127.0.15.3:0")
	p.set(func() { p.lose = joinTries })
	c := joining(t, p)
	// asked again and again within one run: limited by the caller's context
	ctx, cancel := contextUntil(t, func() bool { return len(p.requests()) > 0 })
	defer cancel()
	if _, err := Join(ctx, c); err == nil {
		t.Fatal("joined although the answers were lost")
	}
	p.set(func() { p.lose = 0 })
	first, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.requests() {
		if r.key != keyHash(first.Identity.Key) {
			t.Error("another key after a lost answer: the token would be refused")
		}
	}
	n := len(p.requests())
	again, err := Join(t.Context(), c)
	if err != nil || !again.Already || again.Identity.Serial() != first.Identity.Serial() || len(p.requests()) != n {
		t.Errorf("again: %+v, %v, %d requests after %d", again, err, len(p.requests()), n)
	}
	lock, err := lockState(c.Settings.State)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if r, err := Join(t.Context(), c); err != nil || !r.Already || r.Running != os.Getpid() {
		t.Errorf("while an agent runs: %+v, %v; want its process", r, err)
	}
	other := c
	other.Token += "x"
	if _, err := Join(t.Context(), other); err == nil || !strings.Contains(err.Error(), "this is another command") {
		t.Errorf("another line while an agent runs: %v", err)
	}
	c.Group = "shop/other"
	if _, err := Join(t.Context(), c); err == nil || !strings.Contains(err.Error(),
		"to move this one, run \"ashore-agent leave --state ") {
		t.Errorf("another group while an agent runs: %v", err)
	}
}

// An identity of another mesh, or one that has ended, is replaced by a new line.
func TestJoinAnew(t *testing.T) {
	t.Parallel()
	old := newMesh(t, "cluster.local")
	p := startPlane(t, newMesh(t, "cluster.local"), "127.0.15.4:0")
	ended := old.identity(t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"},
		time.Hour)
	for name, disk := range map[string]func(dir string) error{
		"of another mesh": func(dir string) error {
			return store{dir}.save(ended, Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: time.Now(),
				Renewed: time.Now()})
		},
		"broken": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, identityFile), []byte("half"), 0o600)
		},
		"by another line": func(dir string) error {
			return store{dir}.save(p.mesh.identity(t, web(), time.Hour),
				Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: time.Now(), Renewed: time.Now(),
					Token: tokenHash("another")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := joining(t, p)
			p.set(func() { p.bound = nil })
			if err := errors.Join(disk(c.Settings.State), os.WriteFile(filepath.Join(c.Settings.State, cacheFile), nil,
				0o600)); err != nil {
				t.Fatal(err)
			}
			r, err := Join(t.Context(), c)
			if err != nil || r.Already {
				t.Fatalf("%+v, %v", r, err)
			}
			if _, err := os.Stat(filepath.Join(c.Settings.State, cacheFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the configuration of the former mesh is left: %v", err)
			}
		})
	}
}

// Whatever keeps a workload from joining is named, with what to do about it. Nothing is left
// behind, and a control plane that is not trusted gets no token.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	m, other := newMesh(t, "cluster.local"), newMesh(t, "cluster.local")
	leafOf := func(edit func(*x509.Certificate)) func(*testing.T, *fakePlane, *JoinConfig) {
		return func(t *testing.T, p *fakePlane, _ *JoinConfig) {
			cert := m.server(t, edit)
			p.set(func() { p.present = func() (*tls.Certificate, error) { return cert, nil } })
		}
	}
	file := func(text []byte) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	answer := func(change func([]string) []string) func(*testing.T, *fakePlane, *JoinConfig) {
		return func(_ *testing.T, p *fakePlane, _ *JoinConfig) { p.set(func() { p.change = change }) }
	}
	refuse := func(code codes.Code, text string) func(*testing.T, *fakePlane, *JoinConfig) {
		return func(_ *testing.T, p *fakePlane, _ *JoinConfig) { p.set(func() { p.refuse = status.Error(code, text) }) }
	}
	for _, tc := range []struct {
		name  string
		edit  func(*testing.T, *fakePlane, *JoinConfig)
		asked bool // the token may have been sent
		want  []string
	}{
		{"wrong hash", func(_ *testing.T, _ *fakePlane, c *JoinConfig) { c.Hash = ca.RootID(other.root.Cert) }, false,
			[]string{"is not trusted: its root certificate has the hash " + ca.RootID(m.root.Cert),
				"the join line says " + ca.RootID(other.root.Cert), "make a new line there",
				"do not go on if the hashes still differ"}},
		{"other roots in the file", func(_ *testing.T, _ *fakePlane, c *JoinConfig) {
			c.Settings.XDS.CAFile, c.Hash = file(ca.EncodeCertificates(other.root.Cert)), ""
		}, false, []string{"does not lead to a root in ", "(xds.caFile)", "ashorectl ca show --pem"}},
		{"a service account of another namespace", func(_ *testing.T, p *fakePlane, c *JoinConfig) {
			c.Settings.XDS.TokenFile, c.Token, c.Group = file([]byte("a.b.c")), "", ""
			c.Settings.Workload.Namespace = "shop"
			p.set(func() { p.anyToken, p.id.Namespace = true, "bank" })
		}, true, []string{`workload.namespace: "shop" is not that of the token in `, "set it to bank (--namespace)"}},
		{"the hash of the leaf", func(t *testing.T, p *fakePlane, c *JoinConfig) {
			cert := m.server(t, nil)
			c.Hash = ca.RootID(must(x509.ParseCertificate(cert.Certificate[0])))
			p.set(func() { p.present = func() (*tls.Certificate, error) { return cert, nil } })
		}, false, []string{"is not trusted: its root certificate has the hash "}},
		{"a workload answers", leafOf(func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/ashore/sa/control-plane"}}
		}), false, []string{`is that of "spiffe://cluster.local/ns/ashore/sa/control-plane" and not of the control ` +
			`plane`, "do not trust it"}},
		{"two names", leafOf(func(c *x509.Certificate) {
			c.URIs = append(c.URIs, &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/a/sa/b"})
		}), false,
			[]string{"its certificate names 2 URIs"}},
		{"no name", leafOf(func(c *x509.Certificate) { c.URIs = nil }), false, []string{"its certificate names 0 URIs"}},
		{"not for servers", leafOf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), false,
			[]string{"does not lead to a root that this workload trusts", "incompatible key usage"}},
		{"a leaf of another mesh below our root", func(t *testing.T, p *fakePlane, _ *JoinConfig) {
			cert := other.server(t, nil)
			cert.Certificate = append(cert.Certificate[:2:2], m.root.Cert.Raw)
			p.set(func() { p.present = func() (*tls.Certificate, error) { return cert, nil } })
		}, false, []string{"does not lead to a root that this workload trusts"}},
		{"a clock that is late", leafOf(func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(3*24*time.Hour), time.Now().Add(4*24*time.Hour)
		}), false, []string{"begins at ", " from now by this machine's clock (", "2 days",
			"set the clock (timedatectl, chrony)"}},
		{"a clock that is early", leafOf(func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-2*time.Hour)
		}), false, []string{"ended at ", "2h0m0s ago by this machine's clock (", "set the clock"}},
		{"nobody listens", func(t *testing.T, _ *fakePlane, c *JoinConfig) {
			c.Settings.XDS.Addresses = []string{freeAddress(t, "127.0.15.5")}
		}, false, []string{"control plane 127.0.15.5:", "nothing listens there", "serves TLS on this port (15012)"}},
		{"no such name", func(_ *testing.T, _ *fakePlane, c *JoinConfig) {
			c.Settings.XDS.Addresses = []string{"no-such-host.invalid:15012"}
		}, false, []string{"no-such-host.invalid:15012: the name no-such-host.invalid ", "DNS"}},
		{"plaintext", func(t *testing.T, _ *fakePlane, c *JoinConfig) { c.Settings.XDS.Addresses = []string{plaintext(t)} }, false,
			[]string{"it does not speak TLS: this may be the plaintext port (15010)"}},
		{"a used token", func(_ *testing.T, p *fakePlane, _ *JoinConfig) { p.set(func() { p.bound = new(string) }) }, true,
			[]string{"refuses: the join token is not accepted: it may be used, expired, revoked, mistyped or for another " +
				"group; make a new one on the control plane: ashorectl join-token create --group NAMESPACE/NAME"}},
		{"no group", refuse(codes.FailedPrecondition, "cannot find WorkloadGroup shop/web"), true,
			[]string{"refuses: cannot find WorkloadGroup shop/web; make sure that the WorkloadGroup exists"}},
		{"no authority", refuse(codes.Unimplemented, "unknown service"), true, []string{"refuses: it gives no certificates"}},
		{"a chain too short", answer(func(c []string) []string { return c[:1] }), true,
			[]string{"answered with what cannot be used: 1 certificates came"}},
		{"no roots", answer(func(c []string) []string { c[2] = "\n"; return c }), true,
			[]string{"the roots: it holds no PEM block of a certificate"}},
		{"other roots", answer(func(c []string) []string { c[2] = string(ca.EncodeCertificates(other.root.Cert)); return c }), true, []string{"does not lead to a root of the mesh"}},
		{"more roots without ours", answer(func(c []string) []string { // the intermediate as a root: it leads there, and is not what the line names
			c[2] = c[1]
			return c
		}), true, []string{"do not include the given one"}},
		{"a certificate for another key", answer(func(c []string) []string {
			key := ca.NewKey()
			return m.issue(t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"},
				must(newRequest(key, "")), time.Hour)
		}), true, []string{"the certificate is for another key"}},
		{"garbage", answer(func(c []string) []string { c[0] = "x"; return c }), true,
			[]string{"element 1 of the chain: it holds no PEM block"}},
		{"another group here", func(t *testing.T, _ *fakePlane, c *JoinConfig) {
			id := m.identity(t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"},
				time.Hour)
			if err := (store{c.Settings.State}).save(id, Joined{Version: 1, Group: "shop/db", Workload: "web-1",
				At: time.Now(), Renewed: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}, false, []string{"is a member of shop/db on this machine already, and the command is for shop/web",
			"run \"ashore-agent leave --state "}},
		{"a folder that cannot be made", func(t *testing.T, _ *fakePlane, c *JoinConfig) {
			file := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c.Settings.State = filepath.Join(file, "state")
		}, false, []string{"state folder (setting state): mkdir ", "not a directory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := startPlane(t, m, "127.0.15.5:0")
			c := joining(t, p)
			tc.edit(t, p, &c)
			_, err := Join(t.Context(), c)
			if err == nil {
				t.Fatal("joined")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q\nwant %q", err, want)
				}
			}
			if strings.Contains(err.Error(), testToken) {
				t.Errorf("the error holds the token: %q", err)
			}
			if n := len(p.requests()); n > 0 != tc.asked {
				t.Errorf("%d requests came", n)
			}
			_, keyErr := os.Stat(filepath.Join(c.Settings.State, nextKeyFile))
			if _, refused := errors.AsType[*RefusedError](err); refused && keyErr == nil {
				t.Error("the key of the refused request is left")
			}
			if _, err := os.Stat(filepath.Join(c.Settings.State, identityFile)); err == nil &&
				tc.name != "another group here" {
				t.Error("an identity is left")
			}
		})
	}
}

// plaintext is the address of a server without TLS.
func plaintext(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.15.6:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) // the peer sees it or not
			_ = c.Close()                                              // likewise
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

// Of several control planes any one will do; a refusal ends the search.
func TestJoinSeveral(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	p, q := startPlane(t, m, "127.0.15.7:0"), startPlane(t, m, "127.0.15.7:0")
	c := joining(t, p)
	c.Settings.XDS.Addresses = []string{freeAddress(t, "127.0.15.7"), p.addr, q.addr}
	if _, err := Join(t.Context(), c); err != nil {
		t.Errorf("with one that is away: %v", err)
	}
	c = joining(t, p)
	c.Settings.XDS.Addresses = []string{p.addr, q.addr}
	if _, err := Join(t.Context(), c); err == nil || len(q.requests()) != 0 {
		t.Errorf("error %v, %d requests to the other; want the first one's refusal alone", err, len(q.requests()))
	}
}

// An error in the command line is reported like one in a setting.
func TestJoinUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(*JoinConfig)
		want string
	}{
		{"group", func(c *JoinConfig) { c.Group = "web" }, `--group: "web" is not a WorkloadGroup; want namespace/name, ` +
			`such as shop/web`},
		{"group's namespace", func(c *JoinConfig) { c.Group = "Shop/web" }, `--group: "Shop/web" is not a WorkloadGroup`},
		{"namespace", func(c *JoinConfig) { c.Settings.Workload.Namespace = "bank" },
			`workload.namespace: "bank" is not that of the group shop/web`},
		{"dev", func(c *JoinConfig) { c.Settings.Dev = true }, "dev: is for a workload without identity"},
		{"no hash", func(c *JoinConfig) { c.Hash = "" }, `--ca-hash: "" is not the hash of a root certificate: want ` +
			`sha256: and 64 hexadecimal digits, as "ashorectl join-token create" prints it; or give a file`},
		{"half a hash", func(c *JoinConfig) { c.Hash = c.Hash[:20] }, "--ca-hash: "},
		{"no token", func(c *JoinConfig) { c.Token = "" }, "--token-file: the token is empty; paste the whole command"},
		{"half a token", func(c *JoinConfig) { c.Token = "ashore-join.abc" },
			"--token-file: the token is not one of \"ashorectl join-token create\": want ashore-join.ID.SECRET, copied whole"},
		{"a token in two lines", func(c *JoinConfig) { c.Token = "ashore-join.a.b\nc" }, "--token-file: the token is not one of"},
		{"no file with a token", func(c *JoinConfig) { c.Settings.XDS.TokenFile, c.Token = "/none", "" },
			"xds.tokenFile: open /none"},
		{"two tokens", func(c *JoinConfig) { c.Settings.XDS.TokenFile = "/none" }, "xds.tokenFile: is set, and there is"},
		{"no group", func(c *JoinConfig) { c.Group = "" }, "--group: not set; give the WorkloadGroup"},
		{"no roots", func(c *JoinConfig) { c.Settings.XDS.CAFile, c.Hash = "/none", "" }, "xds.caFile: open /none"},
		{"two proofs of the control plane", func(c *JoinConfig) { c.Settings.XDS.CAFile = "/none" },
			"xds.caFile: is set, and --ca-hash too"},
		{"no control plane", func(c *JoinConfig) { c.Settings.XDS.Addresses = nil },
			"--control-plane: not set; give host:port"},
		{"no port", func(c *JoinConfig) { c.Settings.XDS.Addresses = []string{"a"} }, `xds.addresses: "a" is not host:port`},
		{"address", func(c *JoinConfig) { c.Settings.Workload.Addresses = []string{"x"} },
			`workload.addresses: "x" is not an IP address`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Default()
			s.State, s.XDS.Addresses = stateFolder(t), []string{"127.0.15.8:1"}
			c := JoinConfig{Settings: s, Group: "shop/web", Hash: hashPrefix + strings.Repeat("ab", 32),
				Token: testToken, Log: testlog.New(t)}
			tc.edit(&c)
			_, err := Join(t.Context(), c)
			var u *UsageError
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.As(err, &u) {
				t.Errorf("error %v, want %q as one of usage", err, tc.want)
			}
		})
	}
}
