package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// file is the file that lines are appended to. One goroutine at a time writes; at, earlier and later are safe beside it.
type file struct {
	path    string       // set once
	maxSize int64        // set once
	keep    int          // set once
	log     hclog.Logger // set once

	names *sync.Mutex // set once; held while files change their names, and while they are opened by them

	// the following belong to who writes

	f    *os.File
	size int64
	torn bool // the last line has no end: what is written next begins with one
}

// open opens the file, made when missing, and closes its last line.
func (a *file) open() error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%s is not a regular file: move it away: %w", a.path, err)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file: move it away", a.path)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		a.log.Warn("the audit log was open to other users, closing it to them", "path", a.path, "mode", info.Mode().Perm())
		err = f.Chmod(0o600)
	}
	torn := false
	if err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		_, err = f.ReadAt(last, info.Size()-1)
		torn = last[0] != '\n'
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.f, a.size, a.torn = f, info.Size(), torn
	if torn {
		a.log.Warn("the last line of the audit log is not whole: the machine stopped while it was written", "path", a.path)
	}
	return nil
}

// found has lines go to the file that is found by its name. Somebody may have moved away or deleted the one that they went to:
// then it returns what is to be said of that in the new one, else nothing. Errors: nobody would find what is written.
func (a *file) found() (about string, err error) {
	is, err := a.f.Stat()
	if err != nil {
		return "", err
	}
	there, err := os.Lstat(a.path)
	if err == nil && os.SameFile(is, there) {
		return "", nil
	}
	a.names.Lock()
	defer a.names.Unlock()
	old := a.f
	about = "its file was moved away while ashored ran: what was before stands there"
	if deleted(is) {
		about = "its file was deleted while ashored ran, with all that stood in it"
	}
	if err := a.open(); err != nil {
		if deleted(is) {
			return "", fmt.Errorf("the file was deleted, and cannot be made anew: %w", err)
		}
		return "", nil // where it is now it can be found all the same
	}
	a.log.Error("the audit log begins anew: "+about, "path", a.path)
	return about, errors.Join(old.Close(), wholefile.SyncFolder(filepath.Dir(a.path)))
}

// deleted says whether a file has no name any more.
func deleted(info fs.FileInfo) bool {
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && is.Nlink == 0
}

// append writes whole lines, in a new file when this one is full. With an error none of them is there.
func (a *file) append(lines []byte) error {
	if a.size > 0 && a.size+int64(len(lines)) > a.maxSize {
		a.rotate()
	}
	return a.grow(lines)
}

// grow writes whole lines in this file, however large it is. With an error none of them is there.
func (a *file) grow(lines []byte) error {
	if a.torn {
		if err := a.write([]byte("\n")); err != nil {
			return err
		}
		a.torn = false
	}
	return a.write(lines)
}

// write appends b, or nothing.
func (a *file) write(b []byte) error {
	n, err := a.f.Write(b)
	if err == nil {
		a.size += int64(n)
		return nil
	}
	if n > 0 { // a full disk took a part: take it back, or close the line later
		if cut := a.f.Truncate(a.size); cut != nil {
			a.size, a.torn = a.size+int64(n), true
			err = errors.Join(err, cut)
		}
	}
	return err
}

// rotate moves the file to ".1" and begins a new one. When that does not work the old one goes on being used: too
// large a file is better than a lost line.
func (a *file) rotate() {
	if err := a.turn(); err != nil {
		a.log.Error("the audit log could not be rotated and goes on growing", "path", a.path, "error", err)
	}
}

func (a *file) turn() error {
	if err := a.f.Sync(); err != nil {
		return err
	}
	a.names.Lock()
	defer a.names.Unlock()
	for n := a.keep; n >= 1; n-- {
		if err := os.Rename(a.numbered(n-1), a.numbered(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := *a
	if err := a.open(); err != nil {
		*a = old // it has another name now, and takes lines all the same
		return err
	}
	a.log.Info("audit log rotated", "path", a.path, "kept", a.keep)
	return errors.Join(old.f.Close(), wholefile.SyncFolder(filepath.Dir(a.path)))
}

// numbered is the path of the n-th file before the present one, which is the 0th.
func (a *file) numbered(n int) string {
	if n == 0 {
		return a.path
	}
	return a.path + "." + strconv.Itoa(n)
}

// at opens the n-th file for reading, or the first one before it that there is.
func (a *file) at(n int) (*os.File, error) {
	a.names.Lock()
	defer a.names.Unlock()
	for ; n <= a.keep; n++ {
		if f, err := openIfThere(a.numbered(n)); f != nil || err != nil {
			return f, err
		}
	}
	return os.Open(a.path) // there is none, and the error says so
}

// earlier opens the file before f; nil: there is none, or f itself is kept no more.
func (a *file) earlier(f *os.File) (*os.File, error) {
	a.names.Lock()
	defer a.names.Unlock()
	n, err := a.place(f)
	if err != nil || n < 0 {
		return nil, err
	}
	return openIfThere(a.numbered(n + 1))
}

// later opens the file after f, nil when f is the present one. When f is kept no more, that is the oldest of those that were
// written to after it.
func (a *file) later(f *os.File) (*os.File, error) {
	a.names.Lock()
	defer a.names.Unlock()
	n, err := a.place(f)
	switch {
	case err != nil || n == 0:
		return nil, err
	case n > 0:
		return openIfThere(a.numbered(n - 1))
	}
	last, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for n = a.keep; n >= 0; n-- {
		info, err := os.Stat(a.numbered(n))
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().Before(last.ModTime()):
		case err != nil:
			return nil, err
		default:
			return openIfThere(a.numbered(n))
		}
	}
	return nil, nil
}

// place is which one f is by now; -1: none that is kept. names is held.
func (a *file) place(f *os.File) (int, error) {
	is, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for n := range a.keep + 1 {
		there, err := os.Stat(a.numbered(n))
		if err == nil && os.SameFile(is, there) {
			return n, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return -1, nil
}

// openIfThere opens a file for reading; nil: there is none.
func openIfThere(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}
