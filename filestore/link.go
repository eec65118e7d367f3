package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// refusedError is why a file or folder is not read although it could be, and what to do.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// inside is where a path in dir ends once symbolic links are followed, relative to dir. An end
// outside of dir is a refusedError; dir itself may be a link.
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
	rel, ok := within(root, end)
	if !ok {
		return "", refusedError(fmt.Sprintf("a symbolic link leads out of the folder, to %s: put the content itself here "+
			"(only sources with followSymlinks, and ashorectl validate --follow-symlinks, follow it)", end))
	}
	return rel, nil
}

// realPath is the absolute path without symbolic links. A link may name an absolute path, so two
// paths can only be compared when both are absolute.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// open opens a regular file of the folder, and returns where it ends when it is a symbolic link.
func (s *Source) open(name string) (f *os.File, link string, err error) {
	path := filepath.Join(s.cfg.Dir, name)
	if isLink(path) {
		link, _ = filepath.EvalSymlinks(path) // an error shows below
	}
	if s.cfg.FollowSymlinks {
		f, err = openRegular(path, os.Stat, os.OpenFile)
		return f, link, err
	}
	rel, err := inside(s.cfg.Dir, path)
	if err != nil {
		return nil, "", err
	}
	// Whoever swaps a link now does not get out of the root.
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err = openRegular(rel, root.Stat, root.OpenFile)
	return f, link, err
}

// openRegular opens a regular file. Devices and pipes are not opened: that may have an effect, or
// wait.
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
	return fmt.Errorf("%s is not a regular file: remove it, or give it another extension", path)
}

// link watches the place where a symlink ends.
func (f *folder) link(x *file, end string) {
	f.unlink(x)
	if end == "" {
		return
	}
	x.link = end
	if f.links[end] == nil {
		f.links[end] = map[string]bool{}
	}
	f.links[end][x.name] = true
	dir := filepath.Dir(end)
	if info, err := os.Stat(dir); err == nil {
		f.watch.add(dir, stampOf(info))
	}
}

func (f *folder) unlink(x *file) {
	delete(f.links[x.link], x.name)
	if len(f.links[x.link]) == 0 {
		delete(f.links, x.link)
	}
	x.link = ""
}
