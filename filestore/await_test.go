package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// waits takes in why there is nothing to read, and that nothing else is said.
func (w *world) waits(texts ...string) {
	w.t.Helper()
	b := w.next()
	if b.Full || len(b.Updates) > 0 || b.Standing == nil {
		w.t.Fatalf("said is %+v, want only how the folder stands", b)
	}
	for _, text := range texts {
		if !strings.Contains(b.Standing.Error, text) || b.Standing.Since.IsZero() {
			w.t.Errorf("it stands %+v, want %q", b.Standing, text)
		}
	}
	if s := w.merger.Sources()[0]; s.Synced || s.Error == "" {
		w.t.Errorf("its status is %+v, want one that was not read", s)
	}
}

// A folder that is waited for, and has nothing to read at the start, is told of once, and is read as soon as there is something.
func TestAwait(t *testing.T) {
	t.Parallel()
	file := map[string]string{"a.yaml": entry("a", "10.0.0.1")}
	for name, c := range map[string]struct {
		before func(dir string) error // dir is there, and empty
		come   func(dir string) error
		text   string
	}{
		"empty": {
			before: func(string) error { return nil },
			come:   func(string) error { return nil },
			text:   "holds no file, and none of it was read before",
		},
		"not there": {before: os.Remove, come: func(dir string) error { return os.Mkdir(dir, 0o755) }, text: "there is no folder of configuration"},
		"nor the one around it": {
			before: func(dir string) error { return os.Remove(dir) },
			come:   func(dir string) error { return os.MkdirAll(dir, 0o755) },
			text:   "no such file or directory",
		},
		"a file": {
			before: func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) },
			come:   func(dir string) error { return errors.Join(os.Remove(dir), os.Mkdir(dir, 0o755)) },
			text:   "cannot be read (not a directory)",
		},
		"a symlink to nowhere": {
			before: func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(dir+".real", dir)) },
			come:   func(dir string) error { return os.Mkdir(dir+".real", 0o755) },
			text:   "there is no folder of configuration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, nil)
			if name == "nor the one around it" {
				dir = filepath.Join(dir, "a", "b")
			} else if err := c.before(dir); err != nil {
				t.Fatal(err)
			}
			log := &testlog.Text{}
			w := begin(t, Config{Dir: dir, Await: true, Rescan: 20 * time.Millisecond, Return: 20 * time.Millisecond,
				Log: hclog.New(&hclog.LoggerOptions{Output: log})})
			w.waits(dir, c.text)
			select {
			case b := <-w.out:
				t.Fatalf("more is said: %+v", b)
			case <-time.After(200 * time.Millisecond): // ten looks
			}
			if n := strings.Count(log.String(), "nothing to read yet"); n != 1 {
				t.Errorf("it is logged %d times, want once:\n%s", n, log)
			}
			if err := c.come(dir); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "a.yaml", file["a.yaml"])
			for b := w.next(); !b.Full; b = w.next() { // of an empty one it may be told first
				if len(b.Updates) > 0 {
					t.Fatalf("the first content is not full: %+v", b)
				}
			}
			w.want("a=10.0.0.1")
			if s := w.merger.Sources()[0]; !s.Synced || s.Error != "" || !strings.Contains(s.LastError, dir) {
				t.Errorf("its status is %+v, want one that is well again", s)
			}
			put(t, dir, "a.yaml", entry("a", "10.0.0.2")) // it is followed
			w.want("a=10.0.0.2")
		})
	}
}

// While its files come one by one not all of the folder was seen: what went with another source may come yet.
func TestAwaitFilledSlowly(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, nil)
	w := begin(t, Config{Dir: dir, Await: true, Rescan: 50 * time.Millisecond, Return: 3 * time.Second})
	w.waits(dir)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		put(t, dir, name+".yaml", entry(name, "10.0.0.1"))
		for !strings.Contains(w.state(), name+"=") {
			w.next()
		}
		w.during(time.Second)
		if len(w.merger.Unseen()) == 0 {
			t.Fatalf("with %s it counts as read: what comes after it was not waited for", name)
		}
		if got := w.problems(); !match(got, []string{"the folder has come only now"}) {
			t.Fatalf("problems %v", got)
		}
	}
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1 d=10.0.0.1 e=10.0.0.1")
	if unseen := w.merger.Unseen(); len(unseen) > 0 {
		t.Errorf("unseen are %v", unseen)
	}
}

// What was kept of a folder stands in for it, and nothing waits: that it can be waited for changes nothing there.
func TestAwaitWithKept(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(string) error{
		"not there": os.RemoveAll,
		"empty":     func(dir string) error { return os.Remove(filepath.Join(dir, "a.yaml")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept, Await: true})
			w.stop()
			if err := away(dir); err != nil {
				t.Fatal(err)
			}
			w = run(t, Config{Dir: dir, LastGood: kept, Await: true})
			w.want("a=10.0.0.1", "stale=true")
		})
	}
}

// The text follows what is wrong, and a source that waits ends when it is told to.
func TestAwaitTells(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, nil)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	w := begin(t, Config{Dir: dir, Await: true})
	w.waits("there is no folder")
	since := w.merger.Sources()[0].Since
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.waits("holds no file")
	if got := w.merger.Sources()[0].Since; got != since {
		t.Errorf("it is away since %v, then since %v", since, got)
	}
	w.stop()
}

// What changes while it is told is not missed.
func TestAwaitChangesWhileTold(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, nil)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	log := &testlog.Text{}
	w := begin(t, Config{Dir: dir, Await: true, Log: hclog.New(&hclog.LoggerOptions{Output: log})})
	for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "nothing to read yet"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is logged")
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.waits("there is no folder")
	w.waits("holds no file")
}

// Why what was kept cannot be read is told too: it might have stood in.
func TestAwaitKeptUnread(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	w := begin(t, Config{Dir: dir, Await: true, LastGood: deaf{}})
	w.waits(dir, "what may have been kept of it cannot be read either (no answer)")
}

// deaf is a LastGood that does not answer.
type deaf struct{}

func (deaf) LoadLastGood(context.Context, string) (map[string][]byte, error) {
	return nil, errors.New("no answer")
}
func (deaf) SaveLastGood(context.Context, string, map[string][]byte) error { return nil }

// What is mounted on a folder that is waited for is noticed though the kernel tells of no change.
func TestAwaitMount(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir, disk := folderOf(t, nil), folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	w := begin(t, Config{Dir: dir, Await: true, Return: time.Millisecond})
	w.waits("holds no file")
	if err := unix.Mount(disk, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for w.state() == "" {
		w.next()
	}
	w.want("a=10.0.0.1")
	put(t, disk, "a.yaml", entry("a", "10.0.0.2")) // what is mounted is watched
	w.want("a=10.0.0.2")
}
