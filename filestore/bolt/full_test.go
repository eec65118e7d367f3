package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config/configtest"
)

// shortage is a store that has no room to grow for a while.
type shortage struct {
	store *Store
	// fill takes the room away, and free gives it back.
	fill, free func() error
	// want is what a write says meanwhile.
	want error
}

// check makes sure that writes without room are refused and spoil nothing, and that with room they go on.
func (c shortage) check(ctx context.Context) error {
	put := func(name string) error {
		_, err := c.store.Put(ctx, configtest.Object(name, name+".test"), "x")
		return err
	}
	if err := errors.Join(put("a"), c.fill()); err != nil {
		return err
	}
	big := map[string][]byte{"big": make([]byte, 300<<10)}
	for range 3 {
		// bbolt passes some errors on as text
		if err := c.store.SaveLastGood(ctx, "x", big); err == nil || !strings.Contains(err.Error(), c.want.Error()) {
			return fmt.Errorf("a write without room: got %v, want %v", err, c.want)
		}
	}
	if o, err := c.store.Get(ctx, configtest.Key("a")); err != nil || o.Name != "a" {
		return fmt.Errorf("a read without room: got %v, %w", o, err)
	}
	if err := errors.Join(c.free(), c.store.SaveLastGood(ctx, "x", big), put("b")); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	return c.store.Close()
}

// wantBoth opens the store of dir and looks for what shortage.check wrote.
func wantBoth(t *testing.T, dir string) {
	t.Helper()
	s := open(t, checked(t, dir))
	for _, name := range []string{"a", "b"} {
		if _, err := s.Get(t.Context(), configtest.Key(name)); err != nil {
			t.Error(err)
		}
	}
}

// childFull is a process whose files may not grow for a while. The limit holds for all of a process, hence one of its own.
func childFull(dir string) error {
	s, err := New(Config{Dir: dir})
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return shortage{
		store: s,
		fill: func() error {
			info, err := os.Stat(s.path)
			if err != nil {
				return err
			}
			return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()), Max: limit.Max})
		},
		free: func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit) },
		want: unix.EFBIG,
	}.check(context.Background())
}

// A process that may not make its files larger refuses writes, spoils nothing, and goes on when it may. Every user can
// see that; a full disk only root.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command(self, "child-full", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantBoth(t, dir)
}

// The same on a full disk.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system; TestFileLimit runs for everyone")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fill := filepath.Join(dir, "fill")
	err := shortage{
		store: open(t, checked(t, dir)),
		fill: func() error {
			if err := os.WriteFile(fill, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				return fmt.Errorf("the disk is not full: %v", err)
			}
			return nil
		},
		free: func() error { return os.Remove(fill) },
		want: unix.ENOSPC,
	}.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantBoth(t, dir)
}
