package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// There may be anything in what cannot be read, also where something of before stays in use in its place; over a start too, and until
// it can be read.
func TestUnreadBesideLastGood(t *testing.T) {
	t.Parallel()
	a := entry("a", "10.0.0.1")
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"a part that is no YAML":     func(t *testing.T, dir string) { put(t, dir, "a.yaml", "kind: [\n"+a) },
		"a file that cannot be read": func(t *testing.T, dir string) { linkNowhere(t, dir, "a.yaml") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": a})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			w.unread("")
			spoil(t, dir)
			for range 2 {
				w.want("a=10.0.0.1", "stays in use")
				w.unread("a.yaml")
				w.stop()
				w = run(t, Config{Dir: dir, LastGood: kept})
			}
			put(t, dir, "a.yaml", a)
			w.want("a=10.0.0.1")
			w.unread("")
		})
	}
}

// linkNowhere puts a symlink that leads nowhere in the place of a file.
func linkNowhere(t *testing.T, dir, name string) {
	t.Helper()
	link := filepath.Join(dir, ".link")
	if err := errors.Join(os.Symlink("nowhere", link), os.Rename(link, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

// unread checks of which file, if any, a part cannot be read.
func (w *world) unread(want string) {
	w.t.Helper()
	if id, _ := w.merger.Unread(); id.Group != want {
		w.t.Errorf("what cannot be read is in %q, want %q; problems: %v", id.Group, want, w.problems())
	}
}

// There may be anything in a folder that cannot be read, and only files that were known in it stay in use. That the whole folder is
// away is another matter.
func TestUnreadFolders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir                 string
		known               []string
		away, unread, stale bool
	}{
		"one within, never read":         {"sub", nil, false, true, false},
		"one within, beside known files": {"sub", []string{"a.yaml", "subs/x.yaml"}, false, true, false},
		"one within, with known files":   {"sub", []string{"a.yaml", "sub/x.yaml"}, false, true, true},
		"the whole one, never read":      {".", nil, true, false, false},
		"the whole one":                  {".", []string{"a.yaml"}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(&Source{cfg: Config{Dir: "/config"}}, nil, nil)
			for _, known := range c.known {
				f.files[known] = &file{name: known}
			}
			got := f.failures(&listing{failed: map[string]error{c.dir: fs.ErrPermission}})[c.dir]
			if got.Away != c.away || got.Unread != c.unread || got.Stale != c.stale {
				t.Errorf("away %v, unread %v, stale %v, want %v, %v, %v", got.Away, got.Unread, got.Stale, c.away, c.unread, c.stale)
			}
		})
	}
}
