package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is replaced whole, for its owner alone, and nothing else is left.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, text := range []string{"the first, which is long", "the second"} {
		if err := errors.Join(Write(path, []byte(text)), SyncFolder(dir)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v", info, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if left := names(t, dir); left != "a.json" {
		t.Errorf("there are %s", left)
	}
}

// A failed write leaves the old file, and no other file.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := errors.Join(Write(path, []byte("old")), os.Mkdir(filepath.Join(dir, "folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no more")
	for name, err := range map[string]error{
		"cut short":        WriteFrom(path, func(w io.Writer) error { _, err := io.WriteString(w, "ne"); return errors.Join(err, broken) }),
		"is a folder":      Write(filepath.Join(dir, "folder"), nil),
		"folder not there": Write(filepath.Join(dir, "none", "a.json"), nil),
	} {
		if err == nil || !strings.Contains(err.Error(),
			"write "+dir) || name == "cut short" && !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v", got, err)
	}
	if left := names(t, dir); left != "a.json folder" {
		t.Errorf("there are %s", left)
	}
	if err := SyncFolder(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// Clean removes what was written and never renamed, and nothing else.
func TestClean(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".a.json"+mark+"1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".hidden", "b.new-1"} {
		if err := Write(filepath.Join(dir, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(dir); err != nil {
		t.Error(err)
	}
	if left := names(t, dir); left != ".hidden b.new-1" {
		t.Errorf("there are %s", left)
	}
	if err := Clean(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}
