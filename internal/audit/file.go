package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// file is the current file. One goroutine at a time uses it.
type file struct {
	path    string // immutable
	maxSize int64  // immutable
	keep    int    // immutable

	f    *os.File
	size int64
	torn bool // the last line has no end
}

// open opens or creates the file.
func (a *file) open() error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		_, err = f.ReadAt(last, info.Size()-1)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.f, a.size, a.torn = f, info.Size(), last[0] != '\n'
	return nil
}

// reopen opens a new file if the current one was moved or deleted, and reports that.
func (a *file) reopen() (replaced bool, err error) {
	opened, err := a.f.Stat()
	if err != nil {
		return false, err
	}
	if there, err := os.Stat(a.path); err == nil && os.SameFile(opened, there) {
		return false, nil
	}
	old := a.f
	if err := a.open(); err != nil {
		return false, err
	}
	return true, old.Close()
}

// append writes a line.
func (a *file) append(line []byte) error {
	if a.torn { // a loss of power or a full disk
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.f.Write(line)
	a.size += int64(n)
	a.torn = err != nil && (a.torn || n > 0)
	return err
}

// full reports whether a line does not fit any more.
func (a *file) full(line []byte) bool { return a.size > 0 && a.size+int64(len(line)) > a.maxSize }

// rotate renames the files and opens a new one. With an error the old one stays in use.
func (a *file) rotate() error {
	if err := a.f.Sync(); err != nil {
		return err
	}
	for n := a.keep; n >= 1; n-- {
		if err := os.Rename(a.numbered(n-1), a.numbered(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := a.f
	if err := a.open(); err != nil {
		return err
	}
	return old.Close()
}

// numbered returns the path of the n-th file before the current one.
func (a *file) numbered(n int) string {
	if n == 0 {
		return a.path
	}
	return fmt.Sprintf("%s.%d", a.path, n)
}
