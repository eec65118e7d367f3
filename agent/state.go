package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// lockState creates the state folder and locks it for this process. The lock ends when it is
// closed, or with the process. Errors name the folder; a BusyError has the process that holds it.
func lockState(dir string) (*stateLock, error) {
	fail := func(err error) (*stateLock, error) { return nil, fmt.Errorf("state folder (setting state): %w", err) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := wholefile.Guard(dir, "set another folder (setting state, or --state)"); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		busy := &BusyError{Dir: dir}
		_, _ = fmt.Fscan(f, &busy.PID) // zero if it did not write it yet
		return nil, errors.Join(busy, f.Close())
	} else if err != nil {
		return fail(errors.Join(err, f.Close()))
	}
	// It has a fixed length, so that a later write succeeds on a full disk.
	if _, err := fmt.Fprintf(f, "%-19d\n", os.Getpid()); err != nil {
		_ = f.Truncate(0) // the lock holds; others see no process instead of a wrong one
	}
	if err := wholefile.Clean(dir); err != nil {
		return fail(errors.Join(err, f.Close()))
	}
	return &stateLock{f}, nil
}

// stateLock is the lock of a state folder.
type stateLock struct{ file *os.File }

// Close releases the lock. A child process that is just being started has a copy of the file, so
// closing it is not enough.
func (l *stateLock) Close() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

// keepFile writes a file unless it has the content already: an agent starts on a full disk.
func keepFile(path string, data []byte) error {
	if old, err := readSmall(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return wholefile.Write(path, data)
}

// BusyError means that another process holds the state folder.
type BusyError struct {
	Dir string
	// PID is that process; zero: unknown.
	PID int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("state folder %s is in use by another ashore-agent (process %d); end it, or set another folder "+
		"(setting state)", e.Dir, e.PID)
}

// diskError adds what was being done, and what to do about a full or read-only disk or a missing
// permission.
func diskError(what string, err error) error {
	var hint string
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = ": the disk is full; make room and run this again, nothing was lost"
	case errors.Is(err, syscall.EROFS):
		hint = ": the file system is read-only; mount it writable, or set another folder (setting state, or --state)"
	case errors.Is(err, fs.ErrPermission):
		hint = ": this user may not write there; run as root, or set another folder (setting state, or --state)"
	}
	return fmt.Errorf("%s: %w%s", what, err, hint)
}

// freeSpace returns the free space of the disk of dir, in bytes.
func freeSpace(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// lowSpace is the free space below which a disk counts as full, in bytes.
const lowSpace = 16 << 20
