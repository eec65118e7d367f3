package filestore

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// List names the files that a source reads, and reports the same problems of folders.
func TestList(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"z.yml": "", ".hidden.yaml": "", "notes.txt": "", ".data/b.yaml": "",
		".data/sub/c.json": ""})
	for name, to := range map[string]string{"more": ".data", "circle": ".", "gone.yaml": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files, problems := List(dir)
	var want []string
	for _, name := range []string{"gone.yaml", "more/b.yaml", "more/sub/c.json", "z.yml"} {
		want = append(want, filepath.Join(dir, name))
	}
	if !slices.Equal(files, want) || len(problems) != 1 || problems[0].File != filepath.Join(dir, "circle") {
		t.Errorf("got %q with %v, want %q and a problem of the circle", files, problems, want)
	}
	if _, unread := Content(files[0]); len(unread) != 1 || !strings.Contains(unread[0].Text, "cannot be read") {
		t.Errorf("a link to nowhere: got %v, want that it cannot be read", unread)
	}
	none := filepath.Join(dir, "none")
	files, problems = List(none)
	want = []string{none + ": the folder cannot be read"}
	if len(files) > 0 || !slices.EqualFunc(problemTexts(problems), want, strings.HasPrefix) {
		t.Errorf("no folder: got %q with %v, want that it cannot be read", files, problems)
	}
}

// An object in two files is an error of the second one.
func TestTogether(t *testing.T) {
	t.Parallel()
	var all Together
	for _, name := range []string{"a.yaml", "b.yaml"} {
		all.Add(Parse(name, []byte(entry("x", "10.0.0.1")+entry(name[:1], "10.0.0.1"))))
	}
	all.Add(Parse("c.yaml", nil))
	want := []string{
		"b.yaml:1: ServiceEntry default/x: a.yaml:1 defines it too and takes precedence: remove one of the two",
		"c.yaml: the file is empty: it defines nothing and removes nothing",
	}
	if got := problemTexts(all.Problems); !slices.Equal(got, want) || len(all.Objects) != 3 || !all.Unread {
		t.Errorf("got %d objects, unread %v, %q; want 3, true, %q", len(all.Objects), all.Unread, got, want)
	}
}

func problemTexts(problems []config.Problem) []string {
	out := []string{}
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}
