package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// refusedError says why a readable file or folder is not read, and what to do.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// inside resolves the symlinks of a path in dir, and returns the result relative to dir. If the
// result is outside dir, the error is a refusedError. dir itself may be a symlink.
func inside(dir, path string) (string, error) {
	root, err := realPath(dir)
	if err != nil {
		return "", err
	}
	end, err := realPath(path)
	if err != nil {
		return "", err
	}
	if end == root {
		return ".", nil
	}
	rel, err := filepath.Rel(root, end)
	if err != nil || !filepath.IsLocal(rel) {
		return "", refusedError(fmt.Sprintf("a symbolic link leads out of the folder, to %s: put the content itself here, "+
			"or name that folder as a source of its own", end))
	}
	return rel, nil
}

// realPath returns an absolute path with all symlinks resolved.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// open opens a regular file of the source's folder.
func (s *Source) open(name string) (f *os.File, err error) {
	path := filepath.Join(s.cfg.Dir, name)
	rel, err := inside(s.cfg.Dir, path)
	if err != nil {
		return nil, err
	}
	// A symlink may change after the check above. os.Root does not follow it out of the folder.
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return openRegular(rel, root.Stat, root.OpenFile)
}

// openRegular opens a regular file. It does not open devices and pipes, because that can block or
// have side effects.
func openRegular(
	path string, stat func(string) (fs.FileInfo, error), open func(string, int, fs.FileMode) (*os.File, error),
) (*os.File, error) {
	info, err := stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, irregular(path)
	}
	return open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func irregular(path string) error {
	return fmt.Errorf("%s is not a regular file, so it is not read", path)
}
