package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// socketMode is that of sockets between the agent and Envoy, which has another user of the same
// group as a unit.
func (s *Settings) socketMode() fs.FileMode {
	if s.Envoy.Unit == "" {
		return 0o600
	}
	return 0o660
}

// listenUnix opens a unix socket with a mode. A socket that an earlier agent left is replaced: the
// caller holds the lock of the state folder.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("socket %s: there is something else at that path: remove it, or set another folder (setting state)", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of an earlier agent: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Until then the modes of its folder and the umask protect it.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	return l, nil
}
