package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketMode is that of sockets between the agent and Envoy, which has another user of the same group as a unit.
func (s *Settings) socketMode() fs.FileMode {
	if s.Envoy.Unit == "" {
		return 0o600
	}
	return 0o660
}

// listenUnix opens the unix socket path for processes of this user and of root, with mode 0660 also for those of this
// process' group. A socket that an earlier agent left is replaced: the caller holds the lock of the state folder.
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
	// Between the two calls the folder's mode and the peer's credentials protect it.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	return ownListener{l, mode == 0o660}, nil
}

// ownListener accepts connections of this process' user, of root and, with group, of this process' group; others are closed.
type ownListener struct {
	*net.UnixListener
	group bool
}

// Accept implements net.Listener.
func (l ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if l.trusts(c) {
			return c, nil
		}
		_ = c.Close() // it is not served either way
	}
}

// trusts says whether the process at the other end runs as a user or group that is accepted.
func (l ownListener) trusts(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || credErr != nil {
		return false
	}
	return cred.Uid == 0 || int(cred.Uid) == os.Geteuid() || l.group && int(cred.Gid) == os.Getegid()
}
