package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// diskError says what was being done, and what to do about a disk that is full, read-only or not
// ours.
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

// room is how much of the disk under dir is free, in bytes.
func room(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// littleRoom is when a disk counts as full: a renewal and Envoy's configuration need less.
const littleRoom = 16 << 20
