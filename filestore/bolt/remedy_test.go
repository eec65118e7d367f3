package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What the file system refuses is told with what to do.
func TestRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, FileName)
	if err := os.WriteFile(file, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	wrapped := func(op, path string, err error) error { return &fs.PathError{Op: op, Path: path, Err: err} }
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"own file":   {wrapped("open", file, unix.EACCES), []string{"mode -r--------", "chmod u+rw " + file}},
		"own folder": {wrapped("open", filepath.Join(dir, "none", lockName), unix.EACCES), []string{"chmod u+rwx " + dir}},
		"made":       {wrapped("mkdir", filepath.Join(dir, "none"), unix.EACCES), []string{"install -d -o ", "-m 700 " + filepath.Join(dir, "none")}},
		"read-only":  {wrapped("open", file, unix.EROFS), []string{file + " is on a file system that is mounted for reading only"}},
		"full":       {wrapped("write", file, unix.ENOSPC), []string{"make room on the disk of " + file, "df -h " + dir}},
		"quota":      {&os.LinkError{Op: "rename", Old: "x", New: file, Err: unix.EDQUOT}, []string{"make room"}},
		"another":    {wrapped("open", file, unix.EIO), nil},
		"no path":    {unix.ENOSPC, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := remedy(tc.err)
			if !errors.Is(got, tc.err) || tc.want == nil && got.Error() != tc.err.Error() {
				t.Errorf("got %v, want %v in it", got, tc.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.Error(), want) {
					t.Errorf("got %v, want %q in it", got, want)
				}
			}
		})
	}
	t.Run("of another user", func(t *testing.T) {
		t.Parallel()
		const me = 54321
		if got := denied(file, me); !strings.Contains(got, "this process runs as 54321: \"chown -R 54321 "+file+"\"") {
			t.Error(got)
		}
	})
}

// A write that the file system refused says what to do, also where bbolt passed the error on as text.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	s := &Store{path: "/state/ashore.db"}
	for errno, want := range map[error]string{unix.ENOSPC: "make room on the disk", unix.EDQUOT: "make room on the disk", unix.EROFS: "mount it for writing", unix.EFBIG: "LimitFSIZE", unix.EIO: "kernel's log"} {
		for _, err := range []error{errno, &fs.PathError{Op: "write", Path: s.path, Err: errno}, errors.New("file resize error: truncate: " + errno.Error())} {
			if got := s.unwritten(err); !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), "nothing was changed") || !errors.Is(got, err) {
				t.Errorf("%v: got %v", err, got)
			}
		}
	}
	if got := s.unwritten(ErrClosed); strings.Contains(got.Error(), "nothing was changed") || !errors.Is(got, ErrClosed) {
		t.Errorf("got %v", got)
	}
}
