package traffic

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// wantProblem waits until ashored reports a problem whose text has all words.
func wantProblem(t *testing.T, m *harness.Mesh, words ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("a problem with %q", words), func() error {
		problems, err := admin.Send(context.Background(), m.Admin, admin.CallProblems, admin.None{})
		if err != nil {
			return err
		}
		for _, p := range problems {
			if containsAll(p.String(), words) {
				return nil
			}
		}
		return fmt.Errorf("problems are %v", problems)
	})
}

// wantNoProblem waits until ashored reports none.
func wantNoProblem(t *testing.T, m *harness.Mesh) {
	t.Helper()
	harness.Eventually(t, "no problem", func() error {
		problems, err := admin.Send(context.Background(), m.Admin, admin.CallProblems, admin.None{})
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("problems are %v", problems)
		}
		return err
	})
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// A file is broken under load: the old behaviour stays, also after a restart with the broken file.
// The problem names file and line, and the repair takes effect.
func TestBrokenFile(t *testing.T) {
	t.Parallel()
	m, p, v1, load := underLoad(t)
	for name, broken := range map[string]string{
		"syntax":        "apiVersion: [\n",
		"unknown field": strings.Replace(service("web.test", at(v1)), "resolution", "resolutoin", 1),
		"bad value":     strings.Replace(service("web.test", at(v1)), "number: 8080", "number: 808080", 1),
		"half a file":   service("web.test", at(v1))[:120],
		"unknown kind":  strings.Replace(service("web.test", at(v1)), "ServiceEntry", "ServiceEntyr", 1),
	} {
		m.Write("web.yaml", broken)
		wantProblem(t, m, "web.yaml")
		more(t, load, 50)
		if name == "syntax" {
			m.Ashored.Kill()
			m.Start()
			wantProblem(t, m, "web.yaml")
			fresh := m.Proxy(harness.Workload{Name: "fresh"})
			fresh.Client(port).Want(t, "a proxy that starts now is served the last good version",
				harness.Request{Host: "web.test"}, harness.From("v1"))
		}
		m.Write("web.yaml", service("web.test", at(v1)))
		wantNoProblem(t, m)
	}
	b := backend(t, m, "v2")
	m.Write("web.yaml", service("web.test", at(v1), at(b)))
	p.Client(port).Want(t, "the repaired file takes effect", harness.Request{Host: "web.test"}, harness.From("v2"))
	load.Clean(t, 100)
}

// The folder goes away under load: what it defined stays, the problem says so, and its return takes
// effect.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	m, p, v1, load := underLoad(t)
	away := m.Files + ".away"
	if err := os.Rename(m.Files, away); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, m, m.Files)
	more(t, load, 100)
	if err := os.Rename(away, m.Files); err != nil {
		t.Fatal(err)
	}
	wantNoProblem(t, m)
	b := backend(t, m, "v2")
	m.Write("web.yaml", service("web.test", at(v1), at(b)))
	p.Client(port).Want(t, "a change after the return takes effect", harness.Request{Host: "web.test"},
		harness.From("v2"))
	load.Clean(t, 100)
}

// noRoom fills the disk of ashored's state under load: configuration still takes effect. The
// problem is shown with those words, and ends with free.
func noRoom(t *testing.T, m *harness.Mesh, fill, free func(), words string) {
	t.Helper()
	v1 := backend(t, m, "v1")
	m.Write("web.yaml", service("web.test", at(v1)))
	p := m.Proxy(harness.Workload{Name: "client"})
	client := p.Client(port)
	client.Want(t, "web answers", harness.Request{Host: "web.test"}, harness.From("v1"))
	load := harness.StartLoad(t, client, harness.Request{Host: "web.test"})
	fill()
	b := backend(t, m, "v2")
	// large enough to need space on the disk
	m.Write("web.yaml", service("web.test", at(v1), at(b))+"---\n"+service("many.test", many(4000)...))
	client.Want(t, "a change takes effect without room", harness.Request{Host: "web.test"}, harness.From("v2"))
	wantProblem(t, m, words)
	more(t, load, 50)
	free()
	wantNoProblem(t, m)
	load.Clean(t, 100)
	// what was written without space was saved when there was some
	m.Write("web.yaml", "kind: [")
	wantProblem(t, m, "web.yaml")
	m.Ashored.Kill()
	m.Start()
	wantProblem(t, m, "web.yaml")
	fresh := m.Proxy(harness.Workload{Name: "fresh"})
	fresh.Client(port).Want(t, "a proxy that starts now is served it", harness.Request{Host: "web.test"},
		harness.From("v2"))
}

// The files of ashored's state may not grow for a while, by a limit that every user can set.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	limit := func(size uint64) {
		t.Helper()
		var old unix.Rlimit
		if err := unix.Prlimit(m.Ashored.PID(), unix.RLIMIT_FSIZE, nil, &old); err != nil {
			t.Fatalf("read the limit: %v", err)
		}
		if err := unix.Prlimit(m.Ashored.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(size, old.Max), Max: old.Max},
			nil); err != nil {
			t.Fatalf("set the limit: %v", err)
		}
	}
	fill := func() {
		info, err := os.Stat(filepath.Join(m.State, "ashore.db"))
		if err != nil {
			t.Fatal(err)
		}
		limit(uint64(info.Size()))
	}
	noRoom(t, m, fill, func() { limit(unix.RLIM_INFINITY) }, "file too large")
}

// The state folder's disk is full for a while. Mounts a small file system, which needs root.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system; TestFileLimit runs for everyone")
	}
	m := harness.New(t, nil, harness.StateOn(func(dir string) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
			t.Fatalf("mount: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	}))
	full := filepath.Join(m.State, "fill")
	fill := func() {
		if err := os.WriteFile(full, make([]byte, 4<<20), 0o600); err == nil {
			t.Fatal("the disk is not full: the test proves nothing")
		}
	}
	free := func() {
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
	}
	noRoom(t, m, fill, free, "no space left on device")
}

// many are n endpoints.
func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("v1=10.0.%d.%d", i>>8, i&255)
	}
	return out
}

// A listener that Envoy refuses among good ones: the valid ones work, and the rejection is shown
// with Envoy's message. After a repair while the stream is down, Envoy has exactly what is
// configured.
func TestRejectedListener(t *testing.T) {
	t.Parallel()
	m, p, _, load := underLoad(t)
	// Envoy cannot listen on an address that is not the machine's: it accepts neither the listener
	// nor anything that would take its place.
	foreign := func(bind string) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client}
spec:
  egress:
  - port: {number: 9999, protocol: HTTP, name: odd}
    bind: %s
    hosts: ["*/*"]
  - hosts: ["*/*"]
`, bind)
	}
	b := backend(t, m, "new")
	m.Write("odd.yaml", strings.Replace(service("odd.test", at(b)), "number: 8080, name: http",
		"number: 9999, name: http, targetPort: 8080", 1))
	m.Write("sidecar.yaml", foreign("203.0.113.7"))
	m.Write("new.yaml", service("new.test", at(b)))
	client := p.Client(port)
	client.Want(t, "a good service beside the bad listener", harness.Request{Host: "new.test"}, harness.From("new"))
	harness.Eventually(t, "the refusal is shown", func() error {
		status, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil {
			return err
		}
		for _, proxy := range status.Proxies {
			for _, typ := range proxy.Types {
				for _, r := range typ.Rejected {
					if strings.Contains(r.Error, "203.0.113.7") {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("status is %+v", status.Proxies)
	})
	m.Ashored.Kill()
	ip := m.IP()
	m.Write("sidecar.yaml", foreign(ip))
	m.Start()
	harness.NewClient(t, ip+":9999").Want(t, "the repaired listener", harness.Request{Host: "odd.test"},
		harness.From("new"))
	if dump := p.ConfigDump(); strings.Contains(dump, "203.0.113.7") {
		t.Error("Envoy still has the bad listener")
	}
	load.Clean(t, 100)
}
