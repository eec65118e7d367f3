package identity

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// quiet is a mesh whose control plane has stopped, after both agents saved a copy: a client a-1 and
// web-1.
func quiet(t *testing.T) (m *harness.Mesh, web *server, a *harness.Proxy) {
	t.Helper()
	m = harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"), "mode.yaml": mode("STRICT")},
		harness.Secure(""))
	web = serve(t, m, "web", "web-1")
	a = m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	answers(t, a.Client(httpPort), "web-1")
	for _, p := range []*harness.Proxy{web.Proxy, a} { // in this order: a is to know web after its restart
		kept(t, p)
		answers(t, a.Client(httpPort), "web-1")
	}
	m.Ashored.Kill()
	return m, web, a
}

// cacheOf is the path of an agent's cache file.
func cacheOf(p *harness.Proxy) string { return filepath.Join(p.State, "configuration.cache") }

// kept waits until an agent has a copy that no longer changes: an agent that ends writes a last
// one.
func kept(t *testing.T, p *harness.Proxy) {
	t.Helper()
	path := cacheOf(p)
	harness.Eventually(t, "a copy on disk", func() error {
		_, err := os.Stat(path)
		return err
	})
	p.Stop()
	p.Run()
	p.Ready()
}

// The control plane is away: Envoy is killed, agents are killed, agents are restarted, one by one
// and together. Traffic continues from the copies on disk, and status says so, and also when the
// control plane is back.
func TestRestartsWithoutControlPlane(t *testing.T) {
	t.Parallel()
	m, web, a := quiet(t)
	answers(t, a.Client(httpPort), "web-1")
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		envoy := envoyOf(t, p)
		if err := syscall.Kill(envoy, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "Envoy is started again", func() error {
			r, err := p.Report()
			if err == nil && (!strings.Contains(r.Line("envoy"), "restarts 1, ready") ||
				strings.Contains(r.Line("envoy"), fmt.Sprintf("process %d,", envoy))) {
				err = fmt.Errorf("it says %q", r.Line("envoy"))
			}
			return err
		})
		answers(t, a.Client(httpPort), "web-1")
	}
	for name, end := range map[string]func(*harness.Proxy){"killed": func(p *harness.Proxy) { p.Kill() },
		"stopped": func(p *harness.Proxy) { p.Stop() }} {
		for _, both := range [][]*harness.Proxy{{a}, {web.Proxy}, {a, web.Proxy}} {
			for _, p := range both {
				end(p)
			}
			for _, p := range both {
				p.Run()
			}
			for _, p := range both {
				p.Ready()
				p.WantLine("configuration", "warn running on a copy from "+time.Now().UTC().Format("2006-"))
				p.WantLine("control plane", "bad none since", "connection refused")
			}
			answers(t, a.Client(httpPort), "web-1")
			if err := exchange(t, fmt.Sprintf("%s:%d", web.IP, httpPort), httpPort, nil); err == nil {
				t.Errorf("%s: a copy of STRICT lets plaintext in", name)
			}
		}
	}
	m.Start()
	for _, p := range []*harness.Proxy{a, web.Proxy} {
		p.WantLine("configuration", "ok live")
		p.WantLine("registration", "ok")
	}
	answers(t, a.Client(httpPort), "web-1")
}

// envoyOf is the process of an agent's Envoy.
func envoyOf(t *testing.T, p *harness.Proxy) int {
	t.Helper()
	r, err := p.Report()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(r.Line("envoy"), "process ")
	text, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%q: %v", r.Line("envoy"), err)
	}
	return pid
}

// A copy on disk that is damaged, too old, or of another workload is not used: the log and the
// status say why, and nothing is served by it.
func TestBadCopies(t *testing.T) {
	t.Parallel()
	_, web, a := quiet(t)
	a.Kill()
	held := cacheOf(a)
	edit := func(f func([]byte) []byte) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			text, err := os.ReadFile(held)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(held, f(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	config := filepath.Join(t.TempDir(), "agent.yaml")
	own, err := os.ReadFile(filepath.Join(a.State, "agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("xds:\n  maxAge: 1ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pristine := filepath.Join(t.TempDir(), "cache")
	replicate(t, held, pristine)
	for _, tc := range []struct {
		name, reason string
		damage       func(*testing.T)
		flags        []string
	}{
		{"truncated", "damaged", edit(func(b []byte) []byte { return b[:len(b)/2] }), nil},
		{"without its last byte", "damaged", edit(func(b []byte) []byte { return b[:len(b)-1] }), nil},
		{"a bit flipped at the beginning", "", edit(flip(2)), nil},
		{"a bit flipped in the middle", "damaged", edit(func(b []byte) []byte { return flip(len(b) / 2)(b) }), nil},
		{"a bit flipped at the end", "damaged", edit(func(b []byte) []byte { return flip(len(b) - 3)(b) }), nil},
		{"empty", "", edit(func([]byte) []byte { return nil }), nil},
		{"too old", "it is too old: a control plane confirmed it last at ", func(*testing.T) {}, []string{"--config", config}},
		{"of another workload", "it is of ", func(t *testing.T) {
			t.Helper()
			replicate(t, cacheOf(web.Proxy), held)
		}, nil},
	} {
		replicate(t, pristine, held)
		tc.damage(t)
		a.Run(tc.flags...)
		refusedCopy(t, a, tc.name, tc.reason)
		a.Kill()
	}
	if now, err := os.ReadFile(filepath.Join(a.State, "agent.yaml")); err != nil || !bytes.Equal(now, own) {
		t.Errorf("the settings that it joined with have changed: %s, error %v", now, err)
	}
	replicate(t, pristine, held)
	a.Run()
	a.Ready()
	answers(t, a.Client(httpPort), "web-1")
}

// refusedCopy waits until a workload says that its copy is not used, and why.
func refusedCopy(t *testing.T, p *harness.Proxy, name, reason string) {
	t.Helper()
	harness.Eventually(t, name+": the copy is refused", func() error {
		r, err := p.Report()
		if line := r.Line("configuration"); err == nil && (!strings.HasPrefix(line,
			"bad none: the copy on disk is not used: ") || !strings.Contains(line, reason)) {
			err = fmt.Errorf("status says %q, want %q in it; the log:\n%s", line, reason, p.Log())
		}
		if err == nil && r.Well {
			err = fmt.Errorf("status says that all is well")
		}
		if err == nil && !strings.Contains(p.Log(), "the cached configuration is not used") {
			err = fmt.Errorf("the log says nothing of it:\n%s", p.Log())
		}
		return err
	})
	if a, err := p.Client(httpPort).Do(call()); err == nil {
		t.Errorf("%s: a request gets %d from it", name, a.Status)
	}
}

// flip changes one bit of the byte at n.
func flip(n int) func([]byte) []byte {
	return func(b []byte) []byte {
		b = slices.Clone(b)
		b[n] ^= 1
		return b
	}
}

// replicate makes a file be as another one.
func replicate(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
