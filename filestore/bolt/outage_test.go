package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// While the store cannot be written, writes are refused, reads continue, and Outage says
// why. The outage ends by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	aside := func(path string) error { return os.Rename(path, path+".aside") }
	back := func(path string) error { return os.Rename(path+".aside", path) }
	for name, tt := range map[string]struct {
		begin, end func(path string) error
		want       string
		root       bool // mounts a small file system
	}{
		"moved": {begin: aside, end: back, want: "moved away or deleted"},
		"replaced": {
			begin: func(path string) error { return errors.Join(aside(path), os.WriteFile(path, nil, 0o600)) },
			end:   back, want: "restart ashored",
		},
		"disk full": {
			begin: func(path string) error {
				if err := os.WriteFile(path+".fill", make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
					return fmt.Errorf("the disk is not full: %w", err)
				}
				return nil
			},
			end:  func(path string) error { return os.Remove(path + ".fill") },
			want: "no space left on device: make room", root: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tt.root {
				smallDisk(t, dir)
			}
			synctest.Test(t, func(t *testing.T) {
				var log testlog.Text
				s := open(t, Config{Dir: dir, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
				put(t, s, "a")
				watch(t, s)
				if err := tt.begin(s.path); err != nil {
					t.Fatal(err)
				}
				wantRefused(t, s, tt.want)
				time.Sleep(5 * watchInterval)
				began := s.Outage()
				if !strings.Contains(began.Error, tt.want) || !strings.Contains(began.Error, s.path) ||
					began.Since.IsZero() {
					t.Errorf("outage %+v, want %q and the path", began, tt.want)
				}
				if time.Sleep(5 * watchInterval); s.Outage() != began {
					t.Errorf("the outage %+v became %+v", began, s.Outage())
				}
				if err := tt.end(s.path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * watchInterval)
				if now := s.Outage(); now != (config.Outage{}) {
					t.Errorf("outage %+v, want none", now)
				}
				put(t, s, "b")
				for _, text := range []string{"[ERROR] the store cannot be written", "the store can be written again"} {
					if n := strings.Count(log.String(), text); n != 1 {
						t.Errorf("%q is logged %d times, want once:\n%s", text, n, log.String())
					}
				}
				s = reopen(t, s)
				for _, name := range []string{"a", "b"} {
					if _, err := s.Get(t.Context(), configtest.Key(name)); err != nil {
						t.Errorf("after a restart: %v", err)
					}
				}
			})
		})
	}
}

// smallDisk mounts a file system of 4 MiB until the test ends.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system; TestFileLimit in internal/e2e/traffic runs for everyone")
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// watch runs Watch until the test ends.
func watch(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// wantRefused checks that every kind of write is refused, and that reads continue.
func wantRefused(t *testing.T, s *Store, text string) {
	t.Helper()
	large := configtest.Object("large", "a.test")
	large.Annotations["x"] = strings.Repeat("x", 1<<20)
	_, put := configtest.Put(t.Context(), s, large, "test")
	var records []record.Write
	for i := range 20 {
		records = append(records, record.Write{Key: token(fmt.Sprint(i)), Value: make([]byte, record.MaxValue)})
	}
	for what, err := range map[string]error{
		"object": put,
		"record": s.Records().Commit(t.Context(), records...),
		"group":  s.SaveGroups(t.Context(), "x", map[string][]byte{"g": make([]byte, 1<<20)}),
	} {
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("write of %s: got %v, want %q", what, err, text)
		}
	}
	if o, err := s.Get(t.Context(), configtest.Key("a")); err != nil || o.Name != "a" {
		t.Errorf("read: got %v, %v", o, err)
	}
	if list, err := s.Records().List(t.Context(), "token"); err != nil || len(list) > 0 {
		t.Errorf("records: got %d, %v, want none", len(list), err)
	}
}

// An error of the file system says what to do, also when bbolt passes it on as text.
func TestExplain(t *testing.T) {
	t.Parallel()
	for errno, want := range map[error]string{
		unix.ENOSPC: "make room", unix.EROFS: "mount it for writing",
		unix.EIO: "kernel's log", unix.EACCES: "owner of the state folder", ErrClosed: "",
	} {
		path := &fs.PathError{Op: "write", Path: "x", Err: errno}
		for _, err := range []error{errno, path, errors.New("resize: " + errno.Error())} {
			if got := explain(err); !errors.Is(got, err) || !strings.Contains(got.Error(), want) {
				t.Errorf("%v: got %v, want %q", err, got, want)
			}
		}
	}
}
