package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// While the file of the store is moved away, writes are refused and revocations apply all the same.
func TestStoreFileMoved(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	web, _ := s.joined(t)
	path := filepath.Join(s.dir, "state", "ashore.db")
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the problem", func() bool {
		problems, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		return err == nil && slices.ContainsFunc(problems, func(p feed.Problem) bool {
			return strings.Contains(p.Text, path+" was moved away")
		})
	})
	if made, err := admin.Send(ctx, client, admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"}); err == nil ||
		!strings.Contains(err.Error(), "moved away") {
		t.Errorf("a join token: got %+v, %v, want it refused", made, err)
	}
	files := []admin.Piece{serviceFile("shop")}
	if got, err := admin.Send(ctx, client, admin.CallWrite,
		admin.StoreWrite{Action: admin.Apply, Pieces: files}); err == nil ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("apply: got %+v, %v, want it refused", got, err)
	}
	heard, err := admin.Send(ctx, client, admin.CallRevoke, admin.RevokeRequest{Name: "shop/web-1", Reason: "stolen"})
	if notes := strings.Join(heard.Notes, "\n"); err != nil ||
		!strings.Contains(notes, "WARNING: revoke shop/web-1") || !strings.Contains(notes, "moved away") {
		t.Errorf("revoke: %q, %v", heard.Notes, err)
	}
	if err := web.ask(t, "", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("renewal of who is revoked: %v", err)
	}
	if list, err := admin.Send(ctx, client, admin.CallWorkloads, admin.None{}); err != nil || len(list.Workloads) != 1 || !list.Workloads[0].Revoked {
		t.Errorf("workloads %+v, %v; want it revoked", list, err)
	}
	if err := os.Rename(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	s.until(t, "it is kept", func() bool {
		problems, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		return err == nil && len(problems) == 0
	})
}

// A full disk is one problem with what to do, while it lasts. It ends by itself.
func TestStoreDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system; the tests of filestore/bolt run for everyone")
	}
	s := newSite(t)
	state := filepath.Join(s.dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	end := s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	listed := func() (problems []string) {
		status, err := admin.Send(ctx, client, admin.CallStatus, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range status.Sources {
			if s.Name != "store" {
				continue
			}
			if s.Error != "" || s.Stale > 0 {
				t.Errorf("source %+v, want neither down nor stale", s)
			}
		}
		all, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.Source == "store" {
				problems = append(problems, string(p.Severity)+" "+p.Text)
			}
		}
		return problems
	}
	fill := filepath.Join(state, "fill")
	if err := os.WriteFile(fill, make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	for range 2 {
		if err := s.apply(t, names...); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Fatalf("apply: got %v", err)
		}
	}
	s.until(t, "the problem", func() bool {
		problems := listed()
		return len(problems) == 1 && strings.HasPrefix(problems[0], "error ") &&
			strings.Contains(problems[0], "make room on its disk")
	})
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	s.until(t, "it is over", func() bool {
		return len(listed()) == 0
	})
	if err := s.apply(t, names...); err != nil {
		t.Errorf("apply with room again: %v", err)
	}
	if end() != 0 {
		t.Errorf("the end; it said\n%s", s.log)
	}
}
