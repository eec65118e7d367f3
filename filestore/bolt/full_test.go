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
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
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
		if err := c.store.SaveGroups(ctx, "x", big); err == nil || !strings.Contains(err.Error(), c.want.Error()) {
			return fmt.Errorf("a write without room: got %v, want %v", err, c.want)
		}
	}
	// a small one finds room in the file, and so does a removal; what is told is true all the same: a large one does not
	for _, small := range [][]byte{{1}, nil, {2}, nil} {
		if err := c.store.SaveGroups(ctx, "x", map[string][]byte{"small": small}); err != nil {
			return fmt.Errorf("a small write without room: %w", err)
		}
	}
	told := c.store.Refused()
	if !strings.Contains(told.Error, c.want.Error()) || told.Since.IsZero() {
		return fmt.Errorf("told without room is %+v, want %v", told, c.want)
	}
	var size int
	if _, err := fmt.Sscanf(told.Error, "a write of %d bytes to "+c.store.path+" did not succeed", &size); err != nil || size < len(big["big"]) {
		return fmt.Errorf("told without room is %+v, want the size of the write, %d bytes at least: %w", told, len(big["big"]), err)
	}
	if o, err := c.store.Get(ctx, configtest.Key("a")); err != nil || o.Name != "a" {
		return fmt.Errorf("a read without room: got %v, %w", o, err)
	}
	if err := errors.Join(c.free(), c.store.SaveGroups(ctx, "x", big), put("b")); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if told := c.store.Refused(); told.Error != "" {
		return fmt.Errorf("told with room again is %+v", told)
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
	dir := smallDisk(t)
	fill := filepath.Join(dir, "fill")
	err := shortage{
		store: open(t, checked(t, dir)),
		fill:  func() error { return fillUp(fill) },
		free:  func() error { return os.Remove(fill) },
		want:  unix.ENOSPC,
	}.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantBoth(t, dir)
}

// smallDisk is a folder with a disk of its own, of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp takes all that is left of a small disk.
func fillUp(file string) error {
	if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the disk is not full: %v", err)
	}
	return nil
}

// A full disk is told by the store as a source while it lasts, with what to do, and once in the log. With room again that is over by
// itself: nobody has to write.
func TestDiskFullTold(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system; TestTrouble runs for everyone")
	}
	dir := smallDisk(t)
	var log testlog.Text
	cfg := checked(t, dir)
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
	s := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, ended := make(chan feed.Batch[*config.Object]), make(chan error, 2)
	go func() { ended <- s.Guard(ctx) }()
	go func() { ended <- s.Run(ctx, out) }()
	if b := heard(t, out); !b.Full || len(b.Updates) > 0 {
		t.Errorf("at first it says %+v", b)
	}
	fill := filepath.Join(dir, "fill")
	if err := fillUp(fill); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.SaveGroups(ctx, "x", map[string][]byte{"big": make([]byte, 300<<10)}); err == nil {
			t.Error("a write without room succeeds")
		}
	}
	large := record.Write{Key: token("large"), Value: make([]byte, record.MaxValue)}
	err := s.Records().Commit(ctx, large)
	if err == nil || !strings.Contains(err.Error(), "write records to "+s.path+": ") ||
		!strings.Contains(err.Error(), "(make room on the disk of ") {
		t.Errorf("records without room: %v", err)
	}
	b := heard(t, out)
	if b.Down != nil || b.Full || len(b.Updates) != 1 || b.Updates[0].Group != Unwritable || len(b.Updates[0].Problems) != 1 {
		t.Fatalf("without room it sends %+v", b)
	}
	if p := b.Updates[0].Problems[0]; p.Severity != feed.Error || !strings.Contains(p.Text, "no space left on device: make room on the disk of "+s.path) || p.Since.IsZero() {
		t.Errorf("without room the problem is %+v", p)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if b := heard(t, out); b.Full || len(b.Updates) != 1 || len(b.Updates[0].Problems) > 0 {
		t.Errorf("with room again it says %+v", b)
	}
	cancel()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"[ERROR] the store did not take a write", "[INFO]  the store takes writes as large again"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", text, n, log.String())
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.room-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind is %v, %v", left, err)
	}
}

// heard is the next batch.
func heard(t *testing.T, out <-chan feed.Batch[*config.Object]) feed.Batch[*config.Object] {
	t.Helper()
	select {
	case b := <-out:
		return b
	case <-time.After(30 * time.Second):
		t.Fatal("the store says nothing")
	}
	panic("not reached")
}
