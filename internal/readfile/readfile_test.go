package readfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file is read up to the limit, with its mode. Other kinds of files are errors, and a pipe does
// not block.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("#"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data, info, err := Read(write("fits", 10), 10)
	if err != nil || len(data) != 10 || info.Mode() != 0o600 {
		t.Errorf("%d bytes, %v, %v", len(data), info, err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write("large", 11): "large has more than 10 bytes",
		"/dev/zero":        "/dev/zero is not a regular file",
		dir:                "is not a regular file",
		pipe:               "pipe is not a regular file",
	} {
		if _, _, err := Read(path, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if _, _, err := Read(filepath.Join(dir, "not-there"), 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not there: %v", err)
	}
}
