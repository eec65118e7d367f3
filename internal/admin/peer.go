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

// peerKey is the context key of a connection's peer.
type peerKey struct{}

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

// withPeer adds the peer of a connection to its context.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c.RemoteAddr())
}

// actorKey is the context key of WithActor.
type actorKey struct{}

// WithActor returns a context whose Actor is name, for handlers that are called without a connection.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, name)
}

// Actor returns who sent the request with that context, for operators and the audit log.
func Actor(ctx context.Context) string {
	if name, ok := ctx.Value(actorKey{}).(string); ok {
		return name
	}
	return peerOf(ctx).String()
}

// roleKey is the context key of WithRole.
type roleKey struct{}

// WithRole returns a context whose RoleOf is role.
func WithRole(ctx context.Context, role Role) context.Context {
	return context.WithValue(ctx, roleKey{}, role)
}

// RoleOf returns the role of who sent the request with that context; Nobody if it is not known.
func RoleOf(ctx context.Context) Role {
	role, _ := ctx.Value(roleKey{}).(Role)
	return role
}

// peerOf returns who sent the request with that context.
func peerOf(ctx context.Context) Peer {
	if p, ok := ctx.Value(peerKey{}).(peerAddr); ok {
		return p.peer
	}
	return unknownPeer()
}

// unknownPeer is a peer that the kernel did not report. No user has its number: setuid(2).
func unknownPeer() Peer { return Peer{UID: math.MaxUint32} }

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
	if err != nil { // it may do nothing
		p = unknownPeer()
	}
	return peerConn{c, peerAddr{c.RemoteAddr(), p}}, nil
}

// peerConn is a connection of a peer.
type peerConn struct {
	net.Conn
	remote peerAddr
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return c.remote }

// peerAddr is the address of a peer.
type peerAddr struct {
	net.Addr
	peer Peer
}
