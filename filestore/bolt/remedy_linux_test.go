package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// powerless runs f as a user whom file modes hold for, which they do not for root.
func powerless(t *testing.T, f func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if err := unix.Setfsuid(65534); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// A store that may not be read, or whose folder may not be written, is not damaged.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file, folder fs.FileMode
		want         string
	}{
		"unreadable":         {0, 0o777, FileName + " belongs to "},
		"not writable":       {0o444, 0o777, FileName + " belongs to "},
		"folder of another":  {0o666, 0o555, "state belongs to "},
		"folder not entered": {0o666, 0, "state belongs to "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, err := os.MkdirTemp("", "bolt")
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(base, "state")
			t.Cleanup(func() {
				if err := errors.Join(os.Chmod(dir, 0o700), os.RemoveAll(base)); err != nil {
					t.Error(err)
				}
			})
			s, err := New(Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Close(), os.Remove(filepath.Join(dir, lockName)), os.Chmod(filepath.Join(dir, FileName), tc.file), os.Chmod(dir, tc.folder), os.Chmod(base, 0o755)); err != nil {
				t.Fatal(err)
			}
			err = powerless(t, func() error {
				s, err := New(Config{Dir: dir})
				if err == nil {
					return errors.Join(errors.New("it was opened"), s.Close())
				}
				return err
			})
			if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
