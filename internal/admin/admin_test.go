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

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child-ask" {
		childAsk(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

// dump answers with what is asked for.
func dump(_ context.Context, q DumpRequest) (Dump, error) {
	switch q.Proxy {
	case "nobody":
		return Dump{}, NewError(ErrNotFound, "no proxy %q is connected", q.Proxy)
	case "broken":
		return Dump{}, errors.New("decode: bad bytes")
	}
	return Dump{Proxy: q.Proxy, Types: []DumpType{{Type: q.Type}}}, nil
}

func testRoutes() []Route {
	return []Route{
		Handle(CallVersion, Viewer, func(context.Context, None) (Version, error) {
			return Version{Version: "v1.2.3", Go: "go1"}, nil
		}),
		Handle(CallStatus, Viewer, func(context.Context, None) (Status, error) { return Status{Ready: true}, nil }),
		Handle(CallObjects, Viewer, func(_ context.Context, q ObjectQuery) ([]Object, error) {
			return []Object{{Kind: q.Kind, Metadata: Metadata{Namespace: q.Namespace, Name: q.Name},
				Spec: json.RawMessage(`{"a":1}`)}}, nil
		}),
		Handle(CallDump, Operator, dump),
		Handle(CallCreateToken, Operator, func(ctx context.Context, r TokenRequest) (Token, error) {
			return Token{Group: r.Group, Identity: Actor(ctx)}, nil
		}),
		Handle(CallRotate, Admin, func(_ context.Context, r RotateRequest) (Authority, error) {
			return Authority{Kind: r.Reason}, nil
		}),
		Handle(CallWorkloads, Viewer, func(context.Context, None) (WorkloadList, error) {
			return WorkloadList{}, nil
		}).NotSetUp("set xds.address"),
		Handle(CallAudit, Operator, func(context.Context, AuditQuery) ([]audit.Event, error) { return nil, nil }),
	}
}

// serve serves cfg until the test ends, and returns a client.
func serve(t testing.TB, cfg Config) *Client {
	t.Helper()
	socket := socketPath(t)
	l, err := Listen(socket, false)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener, cfg.Log = l, testlog.New(t)
	if cfg.Role == nil {
		cfg.Role = as(Admin)
	}
	if cfg.Record == nil {
		cfg.Record = func(audit.Event) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if _, err := os.Lstat(socket); err == nil {
			t.Errorf("the server left %s behind", socket)
		}
	})
	return NewClient(socket)
}

// as returns a Config.Role that gives everybody a role.
func as(r Role) func(Peer) Role { return func(Peer) Role { return r } }

// socketPath is short: t.TempDir's may not fit into a socket's address.
func socketPath(t testing.TB) string {
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

// Requests arrive, with who sends them, and responses come back.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t, Config{Routes: testRoutes()}), t.Context()
	check := func(what string, got any, err error, want any) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	version, err := Send(ctx, c, CallVersion, None{})
	check("version", version, err, Version{Version: "v1.2.3", Go: "go1"})
	objects, err := Send(ctx, c, CallObjects, ObjectQuery{Kind: "Gateway", Namespace: "shop", Name: "a b&c"})
	check("objects", objects, err, []Object{{Kind: "Gateway", Metadata: Metadata{Namespace: "shop", Name: "a b&c"},
		Spec: json.RawMessage(`{"a":1}`)}})
	dump, err := Send(ctx, c, CallDump, DumpRequest{Proxy: "web-1.shop", Type: "cds"})
	check("dump", dump, err, Dump{Proxy: "web-1.shop", Types: []DumpType{{Type: "cds"}}})
	token, err := Send(ctx, c, CallCreateToken, TokenRequest{Group: "shop/web"})
	check("token", token.Group, err, "shop/web")
	if !strings.HasPrefix(token.Identity, "user ") && !strings.HasPrefix(token.Identity, "uid ") {
		t.Errorf("the actor is %q", token.Identity)
	}
}

// An error has the text and the kind that the handler gave it.
func TestErrors(t *testing.T) {
	t.Parallel()
	c := serve(t, Config{Routes: testRoutes()})
	for _, tc := range []struct {
		name string
		ask  func(context.Context) error
		is   error
		want string
	}{
		{"not found", func(ctx context.Context) error {
			_, err := Send(ctx, c, CallDump, DumpRequest{Proxy: "nobody"})
			return err
		},
			ErrNotFound, `no proxy "nobody" is connected`},
		{"internal", func(ctx context.Context) error {
			_, err := Send(ctx, c, CallDump, DumpRequest{Proxy: "broken"})
			return err
		},
			nil, "decode: bad bytes"},
		{"unknown call", func(ctx context.Context) error {
			_, err := Send(ctx, c, Call[None, None]("nonsense"), None{})
			return err
		}, ErrNotFound, "POST /v1/nonsense is not part of the admin API"},
		{"not set up", func(ctx context.Context) error { _, err := Send(ctx, c, CallWorkloads, None{}); return err },
			ErrNotSetUp, "set xds.address"},
		{"unknown field", func(ctx context.Context) error {
			_, err := Send(ctx, c, Call[map[string]string, Token](CallCreateToken), map[string]string{"grop": "x"})
			return err
		}, ErrInvalid, `unknown field "grop"`},
		{"large", func(ctx context.Context) error {
			_, err := Send(ctx, c, CallCreateToken, TokenRequest{Group: strings.Repeat("x", maxBody*2)})
			return err
		}, ErrInvalid, "more than 1 MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.ask(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v, want %q that is %v", err, tc.want, tc.is)
			}
		})
	}
}

// A code stands for one error, and an error has one code.
func TestCodes(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for is, code := range codes() {
		r := refusalOf(NewError(is, "x"))
		if seen[code] || r.Code != code || !errors.Is((&Refusal{Code: code}).received(), is) {
			t.Errorf("%v is %d", is, code)
		}
		seen[code] = true
	}
}

// Problems of a write arrive with its error.
func TestRefusal(t *testing.T) {
	t.Parallel()
	want := &Refusal{Text: "2 errors", Is: ErrInvalid, Code: http.StatusBadRequest,
		Problems: []feed.Problem{{Severity: feed.Error, File: "a.yaml", Line: 3, Text: "is missing"}}}
	c := serve(t, Config{Routes: []Route{Handle(CallWrite, Operator, func(context.Context, StoreWrite) (Written, error) {
		return Written{}, want
	})}})
	_, err := Send(t.Context(), c, CallWrite, StoreWrite{})
	got, ok := errors.AsType[*Refusal](err)
	if !ok || !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v, want the refusal", err)
	}
	got.Is, want.Is = nil, nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Profiles are served beside the API.
func TestProfiles(t *testing.T) {
	t.Parallel()
	c := serve(t, Config{})
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
	check := func() {
		t.Helper()
		_, err := Send(t.Context(), NewClient(path), CallStatus, None{})
		if !errors.Is(err, ErrNotRunning) || errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want ErrNotRunning with the path", err)
		}
	}
	check()
	stale(t, path)
	check()
}

// While ashored reloads its settings, its socket is missing for a moment.
func TestWhileReloading(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	done := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		l, err := Listen(path, false)
		if err == nil {
			conn, failed := l.Accept()
			if err = failed; err == nil {
				err = conn.Close()
			}
			err = errors.Join(err, l.Close())
		}
		done <- err
	}()
	if _, err := Send(t.Context(), NewClient(path), CallStatus, None{}); !errors.Is(err, ErrEnded) {
		t.Errorf("error %v, want ErrEnded: it was connected", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
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
	_, err = Send(t.Context(), NewClient(path), CallStatus, None{})
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
		c := serve(t, Config{Routes: testRoutes()})
		path := c.socket
		if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "another ashored serves there") {
			t.Errorf("error %v", err)
		}
		if _, err := Send(t.Context(), c, CallVersion, None{}); err != nil {
			t.Errorf("the live one: %v", err)
		}
	})
	t.Run("leaves other files alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path, false); err == nil || !strings.Contains(err.Error(), "address already in use") {
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
