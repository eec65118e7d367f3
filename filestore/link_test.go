package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Symlinks out of the folder are refused, and nothing of their content is quoted. Those that stay
// inside are followed.
func TestSymlinks(t *testing.T) {
	t.Parallel()
	outside := folderOf(t, map[string]string{"secret.yaml": "secret: hunter2", "good.yaml": entry("x", "10.0.0.9")})
	dir := folderOf(t, map[string]string{"sub/c.yaml": entry("c", "10.0.0.1")})
	around := filepath.Join(t.TempDir(), "config")
	link(t, dir, around)
	link(t, filepath.Join(dir, "sub/c.yaml"), filepath.Join(dir, "inside.yaml"))
	link(t, filepath.Join(outside, "secret.yaml"), filepath.Join(dir, "out.yaml"))
	link(t, outside, filepath.Join(dir, "outside"))
	link(t, ".", filepath.Join(dir, "loop"))
	link(t, "nowhere", filepath.Join(dir, "dangling.yaml"))
	r := start(t, Config{Dir: around})
	r.want(
		"dangling.yaml: unreadable; dangling.yaml: the file cannot be read",
		"inside.yaml: c=10.0.0.1",
		"loop:; loop: the symlink leads to the folder ., which is read anyway: remove it",
		"out.yaml: unreadable; out.yaml: the file is not read: "+
			"a symbolic link leads out of the folder, to "+outside+"/secret.yaml",
		"outside: unreadable; outside: the folder is not read: a symbolic link leads out of the folder",
		"sub/c.yaml: c=10.0.0.1",
	)
	put(t, dir, "sub/c.yaml", entry("c", "10.0.0.2"))
	for !strings.Contains(strings.Join(r.state(), " "), "inside.yaml: c=10.0.0.2") {
		r.next()
	}

	files, problems := List(around)
	if len(files) != 3 || len(problems) != 3 {
		t.Errorf("List: %q, %v; want 3 files and 3 problems", files, problems)
	}
}

// A relative path of a folder, as ashorectl takes, allows the same links as an absolute one.
func TestListRelative(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"sub/a.yaml": entry("a", "10.0.0.1"), "out/b.yaml": entry("b", "10.0.0.1")})
	link(t, filepath.Join(dir, "sub/a.yaml"), filepath.Join(dir, "sub/absolute.yaml"))
	link(t, filepath.Join(dir, "out/b.yaml"), filepath.Join(dir, "sub/out.yaml"))
	here, err := os.Getwd()
	must(t, err)
	relative, err := filepath.Rel(here, filepath.Join(dir, "sub"))
	must(t, err)
	files, problems := List(relative)
	want := []string{filepath.Join(relative, "a.yaml"), filepath.Join(relative, "absolute.yaml")}
	if !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
	if len(problems) != 1 || problems[0].File != filepath.Join(relative, "out.yaml") {
		t.Errorf("problems %v, want one of out.yaml", problems)
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
	must(t, err)
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
	for opened := 0; opened < 1000 && !t.Failed() && ctx.Err() == nil; {
		f, err := s.open("in/a.yaml")
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

// A pipe that replaced a file before it was opened is an error.
func TestReadPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	must(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	if data, _, err := readFile(f); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("read %q, %v", data, err)
	}
}
