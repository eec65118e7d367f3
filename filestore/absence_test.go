package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// empty removes what is in a folder, and the folder too when anew, which is then made again.
func empty(t *testing.T, dir string, anew bool) {
	t.Helper()
	if anew {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder without any file removes nothing, not over a restart either, until there is a file that means it.
func TestFolderEmpty(t *testing.T) {
	t.Parallel()
	const said = ": there is no file of configuration in the folder any more"
	for name, anew := range map[string]bool{"its files removed": false, "replaced by an empty one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			empty(t, dir, anew)
			w.want("a=10.0.0.1 b=10.0.0.1", dir+said)
			w.stop()
			again := run(t, Config{Dir: dir, LastGood: kept, Return: time.Millisecond})
			again.want("a=10.0.0.1 b=10.0.0.1", dir+said)
			put(t, dir, "none.yaml", "# nothing is meant\n")
			again.want("")
			kept.only(t)
		})
	}
}

// Of files that are removed one by one the last stays at work.
func TestLastFile(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	w := run(t, Config{Dir: dir})
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w.want("b=10.0.0.1")
	empty(t, dir, false)
	w.want("b=10.0.0.1", "no file of configuration")
}

// A folder that is filled anew bit by bit loses nothing on the way: changes take effect at once, and what does not
// come back is gone when the folder is left alone.
func TestFolderFilledAnew(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"at once": 0, "after a while": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1"), "c.yaml": entry("c", "10.0.0.1")})
			w := run(t, Config{Dir: dir, Return: 2 * time.Second})
			empty(t, dir, true)
			time.Sleep(pause) // whether it is seen empty
			put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
			w.want("a=10.0.0.2 b=10.0.0.1 c=10.0.0.1", "not all of its files are back")
			put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
			w.want("a=10.0.0.2 b=10.0.0.2 c=10.0.0.1", "not all of its files are back")
			w.want("a=10.0.0.2 b=10.0.0.2")
		})
	}
}

// during takes in all that is said in a time.
func (w *world) during(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case b := <-w.out:
			w.apply(b)
		case <-end:
			return
		}
	}
}

// A folder whose files come back one by one is not left alone between two of them.
func TestFolderFilledSlowly(t *testing.T) {
	t.Parallel()
	files := map[string]string{"last.yaml": entry("last", "10.0.0.1")}
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		files[name+".yaml"] = entry(name, "10.0.0.1")
	}
	dir := folderOf(t, files)
	w := run(t, Config{Dir: dir, Return: 4 * time.Second, Rescan: 50 * time.Millisecond})
	empty(t, dir, false)
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1 d=10.0.0.1 e=10.0.0.1 last=10.0.0.1", "no file of configuration")
	for _, name := range names {
		put(t, dir, name+".yaml", entry(name, "10.0.0.2"))
		w.during(700 * time.Millisecond)
		if got := w.state(); !strings.Contains(got, "last=") {
			t.Fatalf("%s is back, and it is %s: the last one was not waited for", name, got)
		}
	}
	w.want("a=10.0.0.2 b=10.0.0.2 c=10.0.0.2 d=10.0.0.2 e=10.0.0.2")
}

// A file that cannot be read is read again and again; that is no reason to wait on for those that did not come back.
func TestAbsenceEndsBesideUnreadable(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	w := run(t, Config{Dir: dir, Return: time.Second, Rescan: 100 * time.Millisecond})
	empty(t, dir, false)
	w.want("a=10.0.0.1 b=10.0.0.1", "no file of configuration")
	if err := os.Symlink("nowhere", filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	for tries := 0; w.state() != "a=10.0.0.2"; tries++ {
		if w.during(200 * time.Millisecond); tries == 100 {
			t.Fatalf("it is still %s", w.state())
		}
	}
}

// A start while the folder is being filled loses nothing, not over another start either; what does not come is gone
// when the folder is left alone.
func TestStartOnHalfFilled(t *testing.T) {
	t.Parallel()
	const missing = "not all of its files are back"
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1"), "c.yaml": entry("c", "10.0.0.1"), "d.yaml": "# nothing\n"})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	empty(t, dir, true)
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	for range 2 {
		w := run(t, Config{Dir: dir, LastGood: kept})
		w.want("a=10.0.0.2 b=10.0.0.1 c=10.0.0.1", missing)
		w.stop()
	}
	w := run(t, Config{Dir: dir, LastGood: kept, Return: 2 * time.Second})
	w.want("a=10.0.0.2 b=10.0.0.1 c=10.0.0.1", missing)
	put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
	w.want("a=10.0.0.2 b=10.0.0.2 c=10.0.0.1", missing)
	w.want("a=10.0.0.2 b=10.0.0.2")
	kept.only(t, "a.yaml", "b.yaml")
}

// A file that was renamed between two starts takes effect at once, and is no clash with its old name.
func TestStartAfterRename(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "z.yaml", entry("a", "10.0.0.2"))
	w := run(t, Config{Dir: dir, LastGood: kept})
	if got := w.state(); got != "a=10.0.0.2" || len(w.problems()) > 0 {
		t.Errorf("it is %s with %v, want the new content and no problems", got, w.problems())
	}
	kept.only(t, "z.yaml")
}

// Since when a folder is out of reach, and that it is, is told of the whole source, and is known after a restart.
func TestAwaySince(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	w := run(t, Config{Dir: dir, LastGood: kept})
	if s := w.merger.Sources()[0]; s.Error != "" {
		t.Errorf("a folder that is there has the error %q", s.Error)
	}
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.1", "the folder cannot be read")
	before := w.merger.Sources()[0]
	w.stop()
	if err := os.Mkdir(dir, 0o755); err != nil { // away in another way
		t.Fatal(err)
	}
	w = run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1", "no file of configuration")
	after := w.merger.Sources()[0]
	if before.Since.IsZero() || !after.Since.Equal(before.Since) || !strings.Contains(before.Error, "cannot be read") || !strings.Contains(after.Error, "no file of configuration") {
		t.Errorf("since %v: %q; after a restart since %v: %q", before.Since, before.Error, after.Since, after.Error)
	}
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2")
	if s := w.merger.Sources()[0]; s.Error != "" {
		t.Errorf("a folder that is back has the error %q", s.Error)
	}
	w.stop()
	if _, still := kept.kept[awayName]; still {
		t.Error("it is kept on that the folder is away")
	}
}

// What was edited while nobody watched is one change: when a file was first missed, and when another one was first read, is known
// after more starts.
func TestEditedOverStarts(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "c.yaml", entry("c", "10.0.0.1"))
	w := run(t, Config{Dir: dir, LastGood: kept})
	kept.only(t, "a.yaml", "b.yaml", "c.yaml", missedName) // another change than what comes
	w.stop()
	before := time.Now()
	w = run(t, Config{Dir: dir, LastGood: kept, Return: time.Second})
	w.want("b=10.0.0.1 c=10.0.0.1")
	for _, name := range []string{"a.yaml", "c.yaml"} {
		if at := w.edited[name]; at.IsZero() || at.After(before) {
			t.Errorf("%s was edited at %v; the start was later, at %v", name, at, before)
		}
	}
}

// A file that was away for a moment, and is removed later, was edited when it was removed.
func TestMissedAnew(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"sub/a.yaml": entry("a", "10.0.0.1"), "sub/b.yaml": entry("b", "10.0.0.1")})
	sub, away := filepath.Join(dir, "sub"), filepath.Join(t.TempDir(), "away")
	kept := &memory{kept: map[string][]byte{}}
	w := run(t, Config{Dir: dir, LastGood: kept, Return: 100 * time.Millisecond})
	if err := os.Rename(sub, away); err != nil { // as where a disk is not mounted
		t.Fatal(err)
	}
	w.want("a=10.0.0.1 b=10.0.0.1", "no file of configuration")
	if err := os.Rename(away, sub); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.1 b=10.0.0.1")
	before := time.Now()
	remove(t, dir, "sub/a.yaml")
	w.want("b=10.0.0.1")
	if at := w.edited["sub/a.yaml"]; at.Before(before) {
		t.Errorf("it was edited %v before it was removed", before.Sub(at))
	}
	w.stop()
	if b := kept.kept[missedName]; len(b) > 0 {
		t.Errorf("kept as missing are %s, want none", b)
	}
}

// A folder that is away at a start stands in with what was kept, and nobody has seen what is in it, nor that it is as it was; what
// stays in use of it is not a part of which nothing is known. A file that is missing then was not seen until it is back, or gone.
func TestSeen(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1 b=10.0.0.1", "last content of its files stays in use stale=true")
	if id, unread := w.merger.Unread(); unread {
		t.Errorf("%v is said to be unknown", id)
	}
	w.seen(false, "a.yaml", "b.yaml", "c.yaml")
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.1 b=10.0.0.1")
	w.seen(true, "a.yaml", "b.yaml", "c.yaml")
	w.stop()
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w = run(t, Config{Dir: dir, LastGood: kept, Return: time.Second})
	w.want("a=10.0.0.1 b=10.0.0.1", "not all of its files are back")
	w.seen(false, "a.yaml", "c.yaml")
	w.seen(true, "b.yaml")
	w.want("b=10.0.0.1")
	w.seen(true, "a.yaml", "b.yaml", "c.yaml")
}

// seen checks whether what is wrong with files counts as known.
func (w *world) seen(want bool, names ...string) {
	w.t.Helper()
	for _, name := range names {
		if got := w.merger.Seen()(feed.GroupID{Source: w.name, Group: name}); got != want {
			w.t.Errorf("%s was seen: %v, want %v", name, got, want)
		}
	}
}
