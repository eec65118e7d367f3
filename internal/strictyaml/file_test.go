package strictyaml

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A settings file is read up to a bound; what is none is refused with its name.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("#"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if data, err := ReadFile(write("fits", MaxFile)); err != nil || len(data) != MaxFile {
		t.Errorf("%d bytes, %v; want %d", len(data), err, MaxFile)
	}
	for path, want := range map[string]string{
		write("large", MaxFile+1):       "large has more than 1048576 bytes",
		"/dev/zero":                     "/dev/zero is not a regular file",
		dir:                             "is not a regular file",
		filepath.Join(dir, "not-there"): "not-there: no such file",
	} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
