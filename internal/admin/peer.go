package admin

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerKey is the context key of a connection's peer.
type peerKey struct{}

// peer is the process at the other end of a connection.
type peer struct {
	cred *unix.Ucred
	err  error
}

// withPeer remembers who is at the other end: the credentials of the moment when it connected.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	cred, err := credentials(c)
	return context.WithValue(ctx, peerKey{}, peer{cred, err})
}

func credentials(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return nil, err
	}
	return cred, nil
}

// ownerOrRoot allows the user that this process runs as, and root.
func ownerOrRoot(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
