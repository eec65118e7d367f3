package filestore

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What List names is what a source reads, and what it says of folders is what a source says.
func TestList(t *testing.T) {
	t.Parallel()
	elsewhere := folderOf(t, map[string]string{"b.yaml": "", "sub/c.json": ""})
	dir := folderOf(t, map[string]string{"z.yml": "", ".hidden.yaml": "", "notes.txt": ""})
	for name, to := range map[string]string{"more": elsewhere, "circle": ".", "gone.yaml": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files, problems := List(dir, true)
	var want []string
	for _, name := range []string{"gone.yaml", "more/b.yaml", "more/sub/c.json", "z.yml"} {
		want = append(want, filepath.Join(dir, name))
	}
	if !slices.Equal(files, want) || len(problems) != 1 || problems[0].File != filepath.Join(dir, "circle") {
		t.Errorf("got %q with %v, want %q and a problem of the circle", files, problems, want)
	}
	if r := Load(files[0]); !r.Unread || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "cannot be read") {
		t.Errorf("a link to nowhere: got %+v, want that it cannot be read", r)
	}
	none := filepath.Join(dir, "none")
	if files, problems := List(none, true); len(files) > 0 || len(problems) != 1 || !strings.HasPrefix(problems[0].String(), none+": the folder cannot be read") {
		t.Errorf("no folder: got %q with %v, want that it cannot be read", files, problems)
	}
}
