package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child-ask" {
		childAsk(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

// fake answers with what the tests expect. The dump of proxy "slow" waits for release.
type fake struct {
	entered, release chan struct{}
}

func (*fake) Version() Version { return Version{Version: "v1.2.3", Go: "go1"} }

func (*fake) Status() Status {
	return Status{
		Version: Version{Version: "v1.2.3"}, Ready: true, Started: time.Unix(1, 0).UTC(),
		Config: ConfigStatus{Objects: map[string]int{"Gateway": 2}},
		Proxies: []ProxyStatus{{ID: "web-1.shop", Types: []TypeStatus{{Type: "cds",
			Rejected: []Rejection{{Resource: "a", Error: "no"}}}}}},
	}
}

func (*fake) Problems() []feed.Problem {
	return []feed.Problem{{Severity: feed.Error, File: "web.yaml", Line: 3, Text: "wrong"}}
}

func (*fake) Objects(kind, namespace, name string) ([]Object, error) {
	if kind == "nonsense" {
		return nil, NewError(ErrInvalid, `unknown kind "nonsense"`)
	}
	return []Object{{Kind: kind, Metadata: Metadata{Namespace: namespace, Name: name},
		Spec: json.RawMessage(`{"a":1}`)}}, nil
}

func (f *fake) Dump(proxy, typ string) (Dump, error) {
	switch proxy {
	case "slow":
		f.entered <- struct{}{}
		<-f.release
	case "nobody":
		return Dump{}, NewError(ErrNotFound, `no proxy "nobody" is connected`)
	case "broken":
		return Dump{}, errors.New("decode: bad bytes")
	}
	return Dump{Proxy: proxy, Types: []DumpType{{Type: typ}}}, nil
}

// serve starts a server and returns a client of it; both end with the test.
func serve(t *testing.T, role func(Peer) Role) (*Client, *fake, string) {
	t.Helper()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{entered: make(chan struct{}, maxRequests), release: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(Config{Listener: l, Backend: f, Log: testlog.New(t), Role: role}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the server left %s behind", path)
		}
	})
	return NewClient(path), f, path
}

// socketPath is short: t.TempDir's may not fit into a socket's address.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "run", "admin.sock")
}

// What the backend says arrives unchanged.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	c, f, path := serve(t, nil)
	ctx := t.Context()
	check := func(what string, got any, err error, want any) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	version, err := c.Version(ctx)
	check("version", version, err, f.Version())
	status, err := c.Status(ctx)
	check("status", status, err, f.Status())
	problems, err := c.Problems(ctx)
	check("problems", problems, err, f.Problems())
	objects, err := c.Objects(ctx, "Gateway", "shop", "a b&c")
	want, wantErr := f.Objects("Gateway", "shop", "a b&c")
	check("objects", objects, errors.Join(err, wantErr), want)
	dump, err := c.Dump(ctx, "web-1.shop", "cds")
	check("dump", dump, err, Dump{Proxy: "web-1.shop", Types: []DumpType{{Type: "cds"}}})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info.Mode(), err)
	}
}

// An error says what the backend said, and still is what it was.
func TestErrors(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, nil)
	for _, tc := range []struct {
		name string
		ask  func() error
		is   error
		want string
	}{
		{"not found", func() error { _, err := c.Dump(t.Context(), "nobody", ""); return err }, ErrNotFound, `no proxy "nobody" is connected`},
		{"invalid", func() error { _, err := c.Objects(t.Context(), "nonsense", "", ""); return err }, ErrInvalid, `unknown kind "nonsense"`},
		{"internal", func() error { _, err := c.Dump(t.Context(), "broken", ""); return err }, nil, "decode: bad bytes"},
		{"unknown path", func() error { _, err := get[Version](t.Context(), c, "/v9/x", nil); return err }, ErrNotFound, "GET /v9/x is not part of the admin API of this version"},
	} {
		err := tc.ask()
		if err == nil || err.Error() != tc.want || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: error %v, want %q that is %v", tc.name, err, tc.want, tc.is)
		}
	}
}

// Who asks is decided by the kernel's word, not by the address.
func TestForbidden(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, func(Peer) Role { return Nobody })
	_, err := c.Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "may not use the admin API") {
		t.Errorf("error %v, want a refusal", err)
	}
}

// More requests than the limit are refused at once instead of piling up.
func TestTooMany(t *testing.T) {
	t.Parallel()
	c, f, _ := serve(t, nil)
	answers := make(chan error, maxRequests)
	for range maxRequests {
		go func() { _, err := c.Dump(t.Context(), "slow", ""); answers <- err }()
	}
	for range maxRequests {
		<-f.entered
	}
	if _, err := c.Version(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "16 requests are being processed") {
		t.Errorf("error %v, want a refusal", err)
	}
	close(f.release)
	for range maxRequests {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Profiles are served beside the API.
func TestProfiles(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, nil)
	resp, err := c.http.Get("http://ashored/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK ||
		!strings.Contains(string(body), "goroutine profile") {
		t.Errorf("status %s, error %v, body %.60q", resp.Status, err, body)
	}
}

func TestNotRunning(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	check := func(want string) {
		t.Helper()
		_, err := NewClient(path).Status(t.Context())
		if !errors.Is(err, ErrNotRunning) || errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want ErrNotRunning with %q and the path", err, want)
		}
	}
	check("there is no admin socket")
	stale(t, path)
	check("nobody listens")
}

// A process that ends while it is asked is told apart from one that never ran.
func TestEndedWhileAsked(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.Close()
		}
		done <- err
	}()
	_, err = NewClient(path).Status(t.Context())
	if !errors.Is(err, ErrNotRunning) || !errors.Is(err, ErrEnded) ||
		!strings.Contains(err.Error(), "ended while it was asked") {
		t.Errorf("error %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// stale leaves a socket at path that nobody listens at, as a killed process does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	t.Run("replaces a stale socket", func(t *testing.T) {
		t.Parallel()
		path := socketPath(t)
		stale(t, path)
		l, err := Listen(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("makes a folder that others cannot look into", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(filepath.Dir(socketPath(t)), "made", "s")
		l, err := Listen(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("folder: %v, %v; want mode 0700", info.Mode(), err)
		}
	})
	t.Run("leaves a live one alone", func(t *testing.T) {
		t.Parallel()
		c, _, path := serve(t, nil)
		if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "another ashored serves there") {
			t.Errorf("error %v", err)
		}
		if _, err := c.Version(t.Context()); err != nil {
			t.Errorf("the live one: %v", err)
		}
	})
	t.Run("leaves other files alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "something else") {
			t.Errorf("error %v", err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
			t.Errorf("the file is %q, %v", b, err)
		}
	})
	t.Run("path too long", func(t *testing.T) {
		t.Parallel()
		if _, err := Listen("/tmp/"+strings.Repeat("x", 200), false); err == nil ||
			!strings.Contains(err.Error(), "107 at most") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("credentials need a unix socket", func(t *testing.T) {
		t.Parallel()
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		if _, err := credentials(a); err == nil {
			t.Error("no error for a pipe")
		}
	})
}
