package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Symlinks out of the folder are refused, and what was in use before stays. Those that stay inside are followed, and so is
// the folder itself.
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

// link puts a symlink in place, of whatever is there.
func link(t *testing.T, to, path string) {
	t.Helper()
	if err := errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// A file whose link is changed while it is opened is not read from elsewhere.
func TestOpenInside(t *testing.T) {
	t.Parallel()
	secret := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.9")})
	dir := folderOf(t, map[string]string{"in/a.yaml": entry("a", "10.0.0.1")})
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	rel, err := inside(dir, filepath.Join(dir, "in/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "in"), filepath.Join(dir, "was")); err != nil {
		t.Fatal(err)
	}
	link(t, secret, filepath.Join(dir, "in"))
	if f, err := openRegular(rel, root.Stat, root.OpenFile); err == nil {
		t.Errorf("opened %s", f.Name())
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

// With too many files the last content stays, and what is changed in it still takes effect. It ends with what does not
// belong there.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	w := run(t, Config{Dir: dir, Rescan: 100 * time.Millisecond, maxEntries: 50})
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
	put(t, dir, "b.yaml", entry("b", "10.0.0.1"))
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2", "it has more than 50 files and folders")
	if err := os.RemoveAll(crowd); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.2 b=10.0.0.1")
}

// While many files are read the source says how many, and what they define takes effect at once, all together.
func TestReadingMany(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 2*progressEvery + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = "# nothing\n"
	}
	s, err := New(Config{Dir: folderOf(t, files)})
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
}
