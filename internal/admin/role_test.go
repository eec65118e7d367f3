package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// A route is for those who have its role, and each refusal is in the audit log.
func TestRolesOfRoutes(t *testing.T) {
	t.Parallel()
	routes := map[string]Role{"version": Viewer, "dump": Operator, "ca/rotate": Admin, "nonsense": Viewer,
		"audit": Operator}
	for _, have := range []Role{Nobody, Viewer, Operator, Admin} {
		t.Run(have.String(), func(t *testing.T) {
			t.Parallel()
			records := &recorder{}
			c := serve(t, Config{Routes: testRoutes(), Role: as(have), Record: records.record})
			refused := 0
			for name, needs := range routes {
				code := statusOf(t, c, http.MethodPost, "/v1/"+name)
				if (code == http.StatusForbidden) != (have < needs) {
					t.Errorf("%s: status %d, and it needs the role %s", name, code, needs)
				}
				if have < needs {
					refused++
				}
			}
			if code := statusOf(t, c, http.MethodGet, "/debug/pprof/cmdline"); (code == http.StatusOK) != (have == Admin) {
				t.Errorf("profiles: status %d", code)
			} else if code == http.StatusForbidden {
				refused++
			}
			if got := records.count(audit.AdminRefuse); got != refused {
				t.Errorf("%d refusals are recorded, want %d", got, refused)
			}
		})
	}
}

// Each refusal is answered; the audit log is not filled by them.
func TestRefusedOften(t *testing.T) {
	t.Parallel()
	records := &recorder{}
	c := serve(t, Config{Routes: testRoutes(), Role: as(Nobody), Record: records.record})
	const often = 200
	for range often {
		if _, err := Send(t.Context(), c, CallVersion, None{}); !errors.Is(err, ErrForbidden) ||
			!strings.Contains(err.Error(), "may not do that: it needs the role viewer, and theirs is nobody") {
			t.Fatalf("got %v", err)
		}
	}
	if got := records.count(audit.AdminRefuse); got == 0 || got > often/2 {
		t.Errorf("%d of %d refusals are recorded, want some", got, often)
	}
}

// statusOf returns the status of a request without content.
func statusOf(t *testing.T, c *Client, method, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://ashored"+path, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

// recorder keeps events. Safe for concurrent use.
type recorder struct {
	mu     sync.Mutex
	events []audit.Event // guarded by mu
}

func (r *recorder) record(e audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) count(action string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Action == action && e.Actor != "" && e.Target != "" {
			n++
		}
	}
	return n
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.events)
}

// Names and numbers are found, the higher of two roles counts, and what this machine does not know
// is told.
func TestResolve(t *testing.T) {
	t.Parallel()
	a, err := Roles{
		Viewer: []string{"5001", "5002"}, Operator: []string{"5002", "root"}, Admin: []string{"5003"},
	}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		peer Peer
		want Role
	}{
		{Peer{UID: 0}, Admin},
		{Peer{UID: uint32(os.Geteuid())}, Admin},
		{Peer{UID: 4000}, Nobody},
		{Peer{UID: 4000, Groups: []uint32{1, 5001}}, Viewer},
		{Peer{UID: 4001, Groups: []uint32{5001, 5002}}, Operator},
		{Peer{UID: 4000, Groups: []uint32{0}}, Operator},
		{Peer{UID: 4003, Groups: []uint32{5003, 5001}}, Admin},
	} {
		if got := a.Role(tc.peer); got != tc.want {
			t.Errorf("%+v is %s, want %s", tc.peer, got, tc.want)
		}
	}
	if !a.Others() || (Access{}).Others() {
		t.Error("others are named")
	}
	for _, bad := range []Roles{
		{Operator: []string{"no-such-group"}}, {Admin: []string{"-1"}}, {Admin: []string{""}},
	} {
		if _, err := bad.Resolve(); err == nil || !strings.Contains(err.Error(), "this machine has no") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// childAsk asks for the status and for a dump, as the user that it runs as.
func childAsk(socket string) {
	c := NewClient(socket)
	_, status := Send(context.Background(), c, CallStatus, None{})
	_, dump := Send(context.Background(), c, CallDump, DumpRequest{Proxy: "a"})
	fmt.Printf("status %v; dump %v\n", status, dump)
	os.Exit(0)
}

// The kernel says who asks: another user of this machine, by its groups.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: becomes other users; TestResolve and TestRolesOfRoutes run for everyone")
	}
	path := socketPath(t)
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o711); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(path, true)
	if err != nil {
		t.Fatal(err)
	}
	access, err := Roles{Viewer: []string{"5001"}, Operator: []string{"5002"}}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	records := &recorder{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, Config{Listener: l, Routes: testRoutes(), Log: testlog.New(t), Role: access.Role,
			Record: records.record})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	many := make([]uint32, 200)
	for i := range many {
		many[i] = uint32(6000 + i)
	}
	for _, tc := range []struct {
		uid    uint32
		groups []uint32
		want   []string
	}{
		{4000, nil, []string{"status uid 4000 may not do that: it needs the role viewer, and theirs is nobody"}},
		{4001, []uint32{5001}, []string{"status <nil>", "dump uid 4001 may not do that: it needs the role operator, and theirs is viewer"}},
		{4000, []uint32{5002}, []string{"status <nil>; dump <nil>"}},
		{4000, append(many, 5002), []string{"status <nil>; dump <nil>"}},
	} {
		out := askAs(t, path, tc.uid, tc.groups)
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("user %d with %d groups: %q, want %q in it", tc.uid, len(tc.groups), out, want)
			}
		}
	}
	if !strings.Contains(records.text(), "uid 4001") {
		t.Errorf("recorded is %s", records.text())
	}
}

// askAs runs childAsk as another user, from a copy of this program that everybody may read.
func askAs(t *testing.T, socket string, uid uint32, groups []uint32) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "admin-child")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program, err := os.ReadFile(self)
	child := filepath.Join(dir, "child")
	if err := errors.Join(err, os.WriteFile(child, program, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(child, "child-ask", socket)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 4999, Groups: groups}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A socket for others lies in a folder that lets them through, and says so when it does not.
func TestListenForOthers(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := Listen(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for place, want := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o711} {
		if info, err := os.Stat(place); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", place, info.Mode(), err, want)
		}
	}
	for _, mode := range []os.FileMode{0o700, 0o710, 0o750} { // the folder's group is not all who have a role
		closed := filepath.Join(t.TempDir(), "closed")
		if err := errors.Join(os.Mkdir(closed, 0o700), os.Chmod(closed, mode)); err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(filepath.Join(closed, "s"), true); err == nil ||
			!strings.Contains(err.Error(), "setting admin.socket") {
			t.Errorf("folder of mode %v: got %v, %v", mode, l, err)
		}
	}
}
