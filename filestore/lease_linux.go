package filestore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// written says whether a file is complete: no process has it open for writing. ok is false when that cannot
// be known. It asks for a read lease, which the kernel refuses while there is a writer, and returns it
// at once; fcntl(2), "Leases". Files of other users and some file systems have no leases.
func written(f *os.File) (complete, ok bool) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return err == nil, true
	case errors.Is(err, unix.EAGAIN):
		return false, true
	default:
		return false, false
	}
}
