package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// remedy adds to an error of the file system what stands in the way and what to do about it. Other errors
// stay as they are.
func remedy(err error) error {
	path := pathOf(err)
	if path == "" {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrPermission) && making(err):
		return fmt.Errorf("%w: this process runs as %s, who may not make it: make it for that user (\"install -d -o %s -m 700 %s\" as root), or set another state folder",
			err, userName(os.Geteuid()), userName(os.Geteuid()), path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s", err, denied(path, os.Geteuid()))
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: %s is on a file system that is mounted for reading only: mount it for writing, or set another state folder", err, path)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: make room on the disk of %s (\"df -h %s\" and \"df -i %s\" show what it has), or set another state folder", err, path, filepath.Dir(path), filepath.Dir(path))
	}
	return err
}

// unwritten is why a write of objects did not happen, and what to do about it.
func (s *Store) unwritten(err error) error {
	why, todo := s.inTheWay(err)
	if why == "" {
		return fmt.Errorf("write to %s: %w", s.path, err)
	}
	return fmt.Errorf("write to %s: %w; nothing was changed: %s%s", s.path, err, why, todo)
}

// unkept is unwritten for records, which whoever writes them may try again by himself.
func (s *Store) unkept(err error) error { return s.unwrittenOf("write records to", err) }

func (s *Store) unwrittenOf(what string, err error) error {
	if why, _ := s.inTheWay(err); why != "" {
		return fmt.Errorf("%s %s: %w (%s)", what, s.path, err, why)
	}
	return fmt.Errorf("%s %s: %w", what, s.path, err)
}

// inTheWay is what stands in the way of a write, and what to do once that is gone; empty when it is not known.
func (s *Store) inTheWay(err error) (why, todo string) {
	var gone *goneError
	switch {
	case errors.As(err, &gone):
		return gone.todo, ""
	case said(err, unix.ENOSPC), said(err, unix.EDQUOT):
		return fmt.Sprintf("make room on the disk of %s (\"df -h %s\" shows what it has)", s.path, filepath.Dir(s.path)), " and write again"
	case said(err, unix.EROFS):
		return fmt.Sprintf("the file system of %s is mounted for reading only: mount it for writing", s.path), " and write again"
	case said(err, unix.EFBIG):
		return fmt.Sprintf("%s may not grow: raise the limit of the size of files of this process (LimitFSIZE in its systemd unit) and start it again", s.path), ""
	case said(err, unix.EIO):
		return fmt.Sprintf("the disk of %s does not work: the kernel's log says more", s.path), ""
	}
	return "", ""
}

// making says that a folder could not be made.
func making(err error) bool {
	var at *fs.PathError
	return errors.As(err, &at) && at.Op == "mkdir"
}

// pathOf is the path that an error of the file system is about; empty when it is about none.
func pathOf(err error) string {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Path
	case errors.As(err, &link):
		return link.New
	}
	return ""
}

// denied says who owns what the user uid may not use at path, and how to change that. Where there is nothing
// at path the folder above it stands in the way.
func denied(path string, uid int) string {
	info, err := os.Stat(path)
	for err != nil && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	var at unix.Stat_t
	if err == nil {
		err = unix.Stat(path, &at)
	}
	if err != nil {
		return fmt.Sprintf("nobody can tell who owns %s (%v)", path, err)
	}
	need := "u+rw"
	if info.IsDir() {
		need = "u+rwx"
	}
	owner, me := userName(int(at.Uid)), userName(uid)
	if int(at.Uid) != uid {
		return fmt.Sprintf("%s belongs to %s (mode %v), and this process runs as %s: \"chown -R %s %s\" as root gives it that user, or start this process as %s",
			path, owner, info.Mode(), me, me, path, owner)
	}
	return fmt.Sprintf("%s belongs to %s, as whom this process runs, and has mode %v: \"chmod %s %s\" opens it; when it is open already, a security module of the kernel forbids it",
		path, owner, info.Mode(), need, path)
}

// userName is the name of a user, or its number where there is none.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
