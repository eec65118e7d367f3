package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Symlinks out of the folder are refused, and what was in use before stays. Those that stay inside
// are followed, and so is the folder itself.
func TestSymlinksOutside(t *testing.T) {
	t.Parallel()
	secret := folderOf(t, map[string]string{"key.yaml": "secret: hunter2", "good.yaml": entry("x", "10.0.0.9")})
	dir := folderOf(t, map[string]string{
		"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1"), "sub/c.yaml": entry("c", "10.0.0.1"),
	})
	around := filepath.Join(t.TempDir(), "config")
	link(t, dir, around)
	w := run(t, Config{Dir: around})
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1")

	// It ends inside: the object is there twice.
	link(t, filepath.Join(dir, "sub/c.yaml"), filepath.Join(dir, "absolute.yaml"))
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1", "it is defined in sub/c.yaml")
	remove(t, dir, "absolute.yaml")
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1")

	link(t, filepath.Join(secret, "good.yaml"), filepath.Join(dir, "a.yaml"))
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1",
		"a.yaml: the file is not read: a symbolic link leads out of the folder, to "+secret+"/good.yaml")
	link(t, secret, filepath.Join(dir, "folder"))
	link(t, filepath.Join(secret, "key.yaml"), filepath.Join(dir, "key.yaml"))
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1",
		"a.yaml: the file is not read", "folder: the folder is not read", "key.yaml: the file is not read")

	files, problems := List(around, false)
	if len(files) != 2 || len(problems) != 3 {
		t.Errorf("List: %q, %v; want b.yaml, sub/c.yaml and three problems", files, problems)
	}
	if files, problems := List(around, true); len(files) != 6 || len(problems) != 0 {
		t.Errorf("List, with symlinks followed: %q, %v; want six files", files, problems)
	}
}

// A relative path of a folder, as ashorectl takes, allows the same links as an absolute one.
func TestListRelative(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"sub/a.yaml": entry("a", "10.0.0.1"), "out/b.yaml": entry("b", "10.0.0.1")})
	link(t, filepath.Join(dir, "sub/a.yaml"), filepath.Join(dir, "sub/absolute.yaml"))
	link(t, filepath.Join(dir, "out/b.yaml"), filepath.Join(dir, "sub/out.yaml"))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, filepath.Join(dir, "sub"))
	if err != nil {
		t.Fatal(err)
	}
	files, problems := List(relative, false)
	want := []string{filepath.Join(relative, "a.yaml"), filepath.Join(relative, "absolute.yaml")}
	if !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
	if len(problems) != 1 || problems[0].File != filepath.Join(relative, "out.yaml") {
		t.Errorf("problems %v, want one of out.yaml", problems)
	}
}

// link puts a symlink in place, of whatever is there.
func link(t *testing.T, to, path string) {
	t.Helper()
	if err := errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// Nothing is read from elsewhere while a folder is swapped for a link that leads out, again and
// again.
func TestOpenInside(t *testing.T) {
	t.Parallel()
	outside := folderOf(t, map[string]string{"a.yaml": "outside"})
	dir := folderOf(t, map[string]string{"in/a.yaml": "inside"})
	in, own, out := filepath.Join(dir, "in"), filepath.Join(dir, "own"), filepath.Join(dir, "out")
	link(t, outside, out)
	s, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	swapped := make(chan error)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = errors.Join(os.Rename(in, own), os.Rename(out, in), os.Rename(in, out), os.Rename(own, in))
		}
		stop() // after an error there may be nothing to open
		swapped <- err
	}()
	opened := 0
	for opened < 1000 && !t.Failed() && ctx.Err() == nil {
		f, _, err := s.open("in/a.yaml")
		if err != nil {
			continue
		}
		opened++
		if data, _, err := readFile(f); err != nil || string(data) != "inside" {
			t.Errorf("read %q, %v", data, err)
		}
	}
	stop()
	if err := <-swapped; err != nil {
		t.Error(err)
	}
}

// A pipe that was put in the place of a file between looking at it and opening it does not count as
// empty.
func TestReadPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if data, _, err := readFile(f); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("read %q, %v", data, err)
	}
}

// A folder is scanned again soon while it cannot be read or holds too many files, which may pass. A
// refused link stays.
func TestRetrySoon(t *testing.T) {
	t.Parallel()
	refused := folderOf(t, nil)
	link(t, t.TempDir(), filepath.Join(refused, "outside"))
	for name, c := range map[string]struct {
		cfg  Config
		soon bool
	}{
		"in order":       {Config{Dir: folderOf(t, nil)}, false},
		"a refused link": {Config{Dir: refused}, false},
		"not there":      {Config{Dir: filepath.Join(t.TempDir(), "none")}, true},
		"too many files": {Config{Dir: folderOf(t, map[string]string{"a": "", "b": ""}), maxEntries: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := New(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := newWatcher()
			defer w.close()
			f := newFolder(s, w, nil)
			f.scan()
			f.scanTook = 0
			if next := f.nextScan(); (next == rescanSoon) != c.soon {
				t.Errorf("the next scan is in %v, want soon %v", next, c.soon)
			}
		})
	}
}

// Folders nest to a depth, and what is deeper is a problem of its own.
func TestDepth(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", maxFolders)
	dir := folderOf(t, map[string]string{
		"a.yaml": entry("a", "10.0.0.1"), deep + "b.yaml": entry("b", "10.0.0.1"), deep + "d/c.yaml": entry("c", "10.0.0.1"),
	})
	w := run(t, Config{Dir: dir})
	w.want("a=10.0.0.1 b=10.0.0.1", "the folder is not read: it is nested in more than 32 folders")
}

// With too many files the last content stays, and what is changed in it still takes effect, also in
// a folder that the scan does not reach, and after a restart. It ends with what does not belong
// there.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"shop/a.yaml": entry("a", "10.0.0.1")})
	cfg := Config{
		Dir: dir, Rescan: 100 * time.Millisecond, LastGood: &memory{kept: map[string][]byte{}}, maxEntries: 50,
	}
	w := run(t, cfg)
	w.want("a=10.0.0.1")
	crowd := filepath.Join(dir, "crowd")
	if err := os.Mkdir(crowd, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := os.WriteFile(filepath.Join(crowd, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.want("a=10.0.0.1", "it has more than 50 files and folders")
	put(t, dir, "shop/b.yaml", entry("b", "10.0.0.1"))
	put(t, dir, "shop/a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2", "it has more than 50 files and folders")
	w.stop()
	put(t, dir, "shop/a.yaml", entry("a", "10.0.0.3"))
	w = run(t, cfg)
	w.want("a=10.0.0.3", "it has more than 50 files and folders")
	put(t, dir, "shop/a.yaml", entry("a", "10.0.0.4"))
	w.want("a=10.0.0.4", "it has more than 50 files and folders")
	if err := os.RemoveAll(crowd); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.4 b=10.0.0.1")
}

// While many files are read the source says how many, and what they define takes effect at once,
// all together.
func TestReadingMany(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 2*progressEvery + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = "# nothing\n"
	}
	dir := folderOf(t, files)
	s, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan feed.Batch[*config.Object])
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), out) }()
	for _, left := range []int{2*progressEvery + 1, progressEvery + 1} {
		if b := <-out; b.Standing == nil || b.Standing.Reading != left || len(b.Updates) > 0 || b.Full {
			t.Errorf("got %+v, want that %d files are being read", b, left)
		}
	}
	if b := <-out; !b.Full || b.Standing == nil || b.Standing.Reading != 0 {
		t.Errorf("got %d updates, full %v, %+v; want everything, and the end of reading", len(b.Updates), b.Full, b.Standing)
	}

	// Looking for writers of many new files takes time, too: the first batch says how many there are.
	if err := os.Rename(folderOf(t, files), filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	for _, left := range []int{2*progressEvery + 1, 2*progressEvery + 1, progressEvery + 1} {
		if b := <-out; b.Standing == nil || b.Standing.Reading != left {
			t.Errorf("new folder: got %+v, want that %d files are being read", b, left)
		}
	}
}
