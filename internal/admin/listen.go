package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is what a unix socket's address holds on Linux, without the final zero byte: unix(7).
const maxSocketPath = 107

// Listen opens the unix socket path, mode 0600, in a folder that it makes, mode 0700, when missing. A socket that
// nobody listens at any more is replaced. Errors name the path and what to do.
func Listen(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("admin socket %s: the path has %d bytes, a unix socket's has %d at most: choose a shorter one", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("admin socket: make its folder: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	// Between the two calls only the folder's mode protects the path; peer credentials protect what is behind it.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("admin socket: %w", err), l.Close())
	}
	return l, nil
}

// removeStale removes the socket that an earlier process left at path. Anything else there is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("admin socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("admin socket %s: there is something else at that path: remove it, or choose another", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("admin socket %s: another ashored serves there: stop it, or choose another socket", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("admin socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("admin socket: remove what an earlier process left: %w", err)
	}
	return nil
}
