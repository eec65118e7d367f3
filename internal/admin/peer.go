package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os/user"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel reported it at connect.
type Peer struct {
	UID uint32
	// Groups are all that its process is a member of.
	Groups []uint32
}

// String is the peer for people and for the audit log.
func (p Peer) String() string {
	number := strconv.FormatUint(uint64(p.UID), 10)
	if u, err := user.LookupId(number); err == nil {
		return fmt.Sprintf("user %s (uid %s)", u.Username, number)
	}
	return "uid " + number
}

// Network and String implement net.Addr: the peer is the remote address of its connection.
func (Peer) Network() string { return "unix" }

// caller is who sent a request.
type caller struct {
	name string
	role Role
}

// callerKey is the context key of a caller.
type callerKey struct{}

// WithCaller returns the context of a request from a caller with a role.
func WithCaller(ctx context.Context, name string, role Role) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{name, role})
}

// Actor returns who sent the request with that context, for operators and the audit log.
func Actor(ctx context.Context) string {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.name
}

// RoleOf returns the role of who sent the request with that context; Nobody if it is not known.
func RoleOf(ctx context.Context) Role {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.role
}

// credentials returns the peer of a connection, from the kernel.
func credentials(c net.Conn) (Peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr, groupErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups, groupErr = peerGroups(fd)
	})
	if err := errors.Join(err, credErr, groupErr); err != nil {
		return Peer{}, err
	}
	return Peer{UID: cred.Uid, Groups: append(groups, cred.Gid)}, nil
}

// peerGroups are the supplementary groups of the process at the other end, 4096 at most. Source:
// socket(7), SO_PEERGROUPS, Linux 4.13.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 4096)
	size := uint32(len(groups) * 4)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("groups of the peer: %w", errno)
	}
	return groups[:size/4], nil
}

// peerListener is a listener whose connections have the peer as their remote address.
type peerListener struct{ net.Listener }

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p, err := credentials(c)
	if err != nil {
		p = Peer{UID: math.MaxUint32} // no user has this number: setuid(2)
	}
	return peerConn{c, p}, nil
}

// peerConn is a connection of a peer.
type peerConn struct {
	net.Conn
	peer Peer
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return c.peer }
