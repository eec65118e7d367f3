package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// maxSocketPath is what a unix socket's address holds on Linux, without the final zero byte:
// unix(7).
const maxSocketPath = 107

// Listen opens the unix socket path, in a folder that it makes when missing, both for this user
// alone. With others, other users can connect, and peer credentials alone decide: see Access. A
// socket that nobody listens at any more is replaced. Errors name the path and what to do.
func Listen(path string, others bool) (*net.UnixListener, error) {
	folder, socket := fs.FileMode(0o700), fs.FileMode(0o600)
	if others {
		folder, socket = 0o711, 0o666
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("admin socket %s: the path has %d bytes, a unix socket's has %d at most: "+
			"choose a shorter one", path, len(path), maxSocketPath)
	}
	if err := makeFolder(filepath.Dir(path), folder); err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	// Between the two calls only the folder's mode protects the path; peer credentials protect what
	// is behind it.
	if err := os.Chmod(path, socket); err != nil {
		return nil, errors.Join(fmt.Errorf("admin socket: %w", err), l.Close())
	}
	return l, nil
}

// makeFolder makes a folder with a mode, whatever the process's mask. One that is there is left as
// it is; it has to let others through when they are meant to come.
func makeFolder(dir string, mode fs.FileMode) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make its folder: %w", err)
		}
		return os.Chmod(dir, mode)
	case err != nil:
		return err
	case mode&0o001 != 0 && info.Mode().Perm()&0o001 == 0: // x for its group admits only members of that group
		return fmt.Errorf("the setting admin.roles lets other users in, and the socket's folder %s (mode %v) does not: "+
			"choose another place for it (setting admin.socket), or \"chmod 711 %s\" where nothing in that folder is secret",
			dir, info.Mode().Perm(), dir)
	}
	return nil
}

// removeStale removes the socket that an earlier process left at path. What else is there stays:
// listening reports it.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return errors.Join(fmt.Errorf("admin socket %s: another ashored serves there: stop it, or choose another socket",
			path), conn.Close())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("admin socket: remove what an earlier process left: %w", err)
	}
	return nil
}
