package registry_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/runtimetest"
)

// run makes a Memory and runs it until the test ends or stop is called.
func run(t *testing.T, cfg registry.MemoryConfig) (m *registry.Memory, stop func()) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = testlog.New(t)
	}
	m, err := registry.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return m, stop
}

func TestMemory(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, func(t *testing.T, grace time.Duration) registry.Runtime {
		m, _ := run(t, registry.MemoryConfig{Grace: grace})
		return m
	})
}

// at is a registration at 10.0.0.n.
func at(n byte, session string) registry.Registration {
	r := runtimetest.Web(session)
	r.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}
	r.Name = registry.RegistrationName(r.Group, r.Addresses[0], "")
	return r
}

// names are the registered workloads.
func names(m *registry.Memory) string {
	var out []string
	for k := range m.Registrations().All() {
		out = append(out, strings.TrimPrefix(k.Name, "web-10.0.0."))
	}
	return strings.Join(out, " ")
}

// step is something that happens at a time, and who is registered right after.
type step struct {
	at   time.Duration
	do   func(*registry.Memory) error
	want string
}

func connect(n byte, session string) func(*registry.Memory) error {
	return func(m *registry.Memory) error { return m.Connect(context.Background(), at(n, session)) }
}

func leave(n byte, session string) func(*registry.Memory) error {
	return func(m *registry.Memory) error {
		return m.Disconnect(context.Background(), at(n, session).RegistrationKey, session)
	}
}

func nothing(*registry.Memory) error { return nil }

func TestLeases(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"a connected proxy counts for ever": {{0, connect(1, "a"), "1"}, {1000 * time.Hour, nothing, "1"}},
		"one that has gone counts for its grace": {
			{0, connect(1, "a"), "1"}, {time.Second, leave(1, "a"), "1"}, {10900 * time.Millisecond, nothing, "1"}, {12200 * time.Millisecond, nothing, ""},
		},
		"one that comes back in time stays": {
			{0, connect(1, "a"), "1"}, {time.Second, leave(1, "a"), "1"}, {9 * time.Second, connect(1, "b"), "1"}, {time.Hour, nothing, "1"},
		},
		"one that goes again has its whole grace": {
			{0, connect(1, "a"), "1"}, {time.Second, leave(1, "a"), "1"}, {9 * time.Second, connect(1, "b"), "1"}, {10 * time.Second, leave(1, "b"), "1"},
			{19900 * time.Millisecond, nothing, "1"}, {21200 * time.Millisecond, nothing, ""},
		},
		"each ends by itself": {
			{0, connect(1, "a"), "1"}, {0, connect(2, "a"), "1 2"}, {0, connect(3, "a"), "1 2 3"}, {time.Second, leave(2, "a"), "1 2 3"}, {5 * time.Second, leave(1, "a"), "1 2 3"},
			{12200 * time.Millisecond, nothing, "1 3"}, {14900 * time.Millisecond, nothing, "1 3"}, {16200 * time.Millisecond, nothing, "3"},
		},
		"an older stream that ends is no farewell": {
			{0, connect(1, "a"), "1"}, {time.Second, connect(1, "b"), "1"},
			{2 * time.Second, func(m *registry.Memory) error { _ = leave(1, "a")(m); return nil }, "1"}, {time.Hour, nothing, "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, stop := run(t, registry.MemoryConfig{})
				defer stop()
				play(t, m, steps)
			})
		})
	}
}

// play does what steps say.
func play(t *testing.T, m *registry.Memory, steps []step) {
	t.Helper()
	start := time.Now()
	for _, s := range steps {
		time.Sleep(time.Until(start.Add(s.at)))
		synctest.Wait()
		if err := s.do(m); err != nil {
			t.Fatal(err)
		}
		if got := names(m); got != s.want {
			t.Fatalf("after %s: %q are registered, want %q", s.at, got, s.want)
		}
	}
}

// A process that is killed costs nobody: what it had kept counts until its proxies have had time to
// come back.
func TestRestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "runtime.json")
	synctest.Test(t, func(t *testing.T) {
		m, stop := run(t, registry.MemoryConfig{File: file, Replica: "one"})
		defer stop()
		for n := byte(1); n <= 3; n++ {
			if err := connect(n, "a")(m); err != nil {
				t.Fatal(err)
			}
		}
		sick := registry.Report{State: registry.ReportedUnhealthy, Message: "503"}
		if err := m.Report(t.Context(), at(2, "a").RegistrationKey, "a", sick); err != nil {
			t.Fatal(err)
		}
		if err := leave(3, "a")(m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // and then it is killed: nobody calls stop before the next begins
		left, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if err := os.WriteFile(file, left, 0o600); err != nil {
			t.Fatal(err)
		}

		again, stop := run(t, registry.MemoryConfig{File: file, Replica: "two"})
		defer stop()
		r := again.Registrations().At(at(2, "").RegistrationKey)
		if r == nil || r.Health.State != sick.State || r.Health.Message != sick.Message || r.Labels["app"] != "web" ||
			r.Replica != "one" || r.Created.IsZero() {
			t.Fatalf("after the restart: %+v", r)
		}
		play(t, again, []step{
			{0, nothing, "1 2 3"},
			{4 * time.Minute, connect(2, "b"), "1 2 3"},
			{299 * time.Second, nothing, "1 2 3"},
			{302 * time.Second, nothing, "2"},
		})
	})
}

// A file that cannot be used is renamed, and the next write makes a new one.
func TestUnusableFile(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty":            "",
		"cut":              `[{"namespace":"shop","na`,
		"no list":          `{}`,
		"not JSON":         "\x00\x00\x00",
		"no name":          `[{"namespace":"shop","addresses":["10.0.0.1"]}]`,
		"no address":       `[{"namespace":"shop","name":"web"}]`,
		"an unknown state": `[{"namespace":"shop","name":"web","addresses":["10.0.0.1"],"health":{"state":9}}]`,
		"an empty address": `[{"namespace":"shop","name":"web","addresses":[""]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "runtime.json")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			m, stop := run(t, registry.MemoryConfig{File: file})
			if got := names(m); got != "" {
				t.Errorf("registered: %q", got)
			}
			if aside, err := os.ReadFile(file + ".unusable"); err != nil || string(aside) != content {
				t.Errorf("put aside: %q, %v", aside, err)
			}
			if err := connect(1, "a")(m); err != nil {
				t.Fatal(err)
			}
			stop()
			again, _ := run(t, registry.MemoryConfig{File: file})
			if got := names(again); got != "1" {
				t.Errorf("registered after another start: %q", got)
			}
		})
	}
}

// A write that fails stops nobody. It is repeated until it succeeds; its begin and its end are
// logged.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "folder")
	file := filepath.Join(folder, "runtime.json")
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Text
		m, stop := run(t, registry.MemoryConfig{File: file, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
		defer stop()
		play(t, m, []step{{0, connect(1, "a"), "1"}, {10 * time.Second, nothing, "1"}})
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for _, message := range []string{"registrations would be lost", "saved again"} {
			if n := strings.Count(log.String(), message); n != 1 {
				t.Errorf("%q is logged %d times, want once:\n%s", message, n, log.String())
			}
		}
		if content, err := os.ReadFile(file); !strings.Contains(string(content), "web-10.0.0.1") {
			t.Errorf("got %q, %v, want the registration", content, err)
		}
	})
}

// A file that could not be written is written as soon as that is possible.
func TestFileWrittenLater(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "folder", "runtime.json")
	m, _ := run(t, registry.MemoryConfig{File: file})
	if err := connect(1, "a")(m); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // it was tried twice
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The file is its owner's alone and leaves nothing beside it.
func TestFileMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, stop := run(t, registry.MemoryConfig{File: filepath.Join(dir, "runtime.json")})
	if err := connect(1, "a")(m); err != nil {
		t.Fatal(err)
	}
	stop()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v in the folder, %v", entries, err)
	}
	if i, err := entries[0].Info(); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
}

func TestRegistrationName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	for _, tc := range []struct{ group, address, network, want string }{
		{"web", "10.0.0.1", "", "web-10.0.0.1"},
		{"web", "10.0.0.1", "n1", "web-10.0.0.1-n1"},
		{"web", "2001:db8::1", "", "web-2001-db8--1"},
		{"web", "::ffff:10.0.0.1", "", "web-10.0.0.1"},
		{"web", "fe80::1%eth0", "", "web-fe80--1"},
		{long, "10.0.0.1", "n1", strings.Repeat("a", 241) + "-10.0.0.1-n1"},
	} {
		if got := registry.RegistrationName(tc.group, netip.MustParseAddr(tc.address), tc.network); got != tc.want {
			t.Errorf("%s %s %s: %q, want %q", tc.group, tc.address, tc.network, got, tc.want)
		}
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	var got []bool
	for _, s := range []registry.Reported{registry.NotReported, registry.ReportedHealthy, registry.ReportedUnhealthy} {
		got = append(got, registry.Report{State: s}.Healthy(false), registry.Report{State: s}.Healthy(true))
	}
	if want := []bool{true, false, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
