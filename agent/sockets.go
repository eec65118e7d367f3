package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Messages of sock_diag. Source: Linux, include/uapi/linux/sock_diag.h and inet_diag.h; sock_diag(7).
const (
	socketsByFamily = 20 // SOCK_DIAG_BY_FAMILY
	destroySocket   = 21 // SOCK_DESTROY
	socketIDSize    = 48 // struct inet_diag_sockid
	socketAsk       = 8 + socketIDSize
	socketAnswer    = 4 + socketIDSize + 20
	// socketTimeout bounds the wait for the kernel.
	socketTimeout = 5 // seconds
)

// openStates are those of TCP with something left to end: ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK
// and CLOSING.
const openStates = 1<<1 | 1<<2 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11

// tcpSocket is one of this network namespace.
type tcpSocket struct {
	remote netip.Addr
	inode  uint32
	family byte
	id     [socketIDSize]byte // as the kernel says it
}

// socketTable asks the kernel about sockets. Not safe for concurrent use.
type socketTable struct{ fd int }

// openSocketTable needs no rights. Errors: a kernel without sock_diag, or a sandbox that forbids AF_NETLINK.
func openSocketTable() (*socketTable, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: socketTimeout}); err != nil {
		return nil, errors.Join(fmt.Errorf("bound sock_diag: %w", err), unix.Close(fd))
	}
	return &socketTable{fd}, nil
}

func (t *socketTable) close() error { return unix.Close(t.fd) }

// list are the open TCP sockets with one of these remote addresses.
func (t *socketTable) list(addresses map[netip.Addr]bool) ([]tcpSocket, error) {
	var out []tcpSocket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ask := withFilter(socketRequest(socketsByFamily, unix.NLM_F_DUMP, family, openStates, [socketIDSize]byte{}), remoteFilter(addresses))
		err := t.exchange(ask, func(body []byte) {
			if s, ok := parseSocket(body); ok && addresses[s.remote] {
				out = append(out, s)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
	}
	return out, nil
}

// destroy ends a socket: its program gets an error, and its peer a reset. False: it has gone already. Errors: the right to
// do so is missing (EPERM), or the kernel cannot (EOPNOTSUPP).
func (t *socketTable) destroy(s tcpSocket) (bool, error) {
	err := t.exchange(socketRequest(destroySocket, unix.NLM_F_ACK, s.family, 0, s.id), func([]byte) {})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// socketRequest is a struct inet_diag_req_v2 with its header.
func socketRequest(kind, flags uint16, family byte, states uint32, id [socketIDSize]byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+socketAsk)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	body := b[unix.NLMSG_HDRLEN:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], states)
	copy(body[8:], id[:])
	return b
}

// parseSocket reads a struct inet_diag_msg; not ok: it is none.
func parseSocket(b []byte) (s tcpSocket, ok bool) {
	if len(b) < socketAnswer {
		return s, false
	}
	s.family = b[0]
	s.id = [socketIDSize]byte(b[4 : 4+socketIDSize])
	s.inode = binary.NativeEndian.Uint32(b[socketAnswer-4:])
	remote := s.id[20:36]
	switch s.family {
	case unix.AF_INET:
		s.remote = netip.AddrFrom4([4]byte(remote[:4]))
	case unix.AF_INET6:
		s.remote = netip.AddrFrom16([16]byte(remote)).Unmap()
	}
	return s, s.remote.IsValid()
}

// exchange sends a request and calls each for the body of every answer.
func (t *socketTable) exchange(request []byte, each func(body []byte)) error {
	if err := unix.Sendto(t.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(t.fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return netlinkError(m.Data)
			default:
				each(m.Data)
			}
		}
	}
}

// netlinkError reads a struct nlmsgerr; nil: it says that all is well.
func netlinkError(b []byte) error {
	if len(b) < 4 {
		return unix.EBADMSG
	}
	if code := int32(binary.NativeEndian.Uint32(b)); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// canDestroy says whether this process may end sockets: it ends one that it made for that. The error says why not.
func canDestroy(ctx context.Context) (err error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false) // Envoy's are plain; Linux does not end one of several paths: EINVAL
	l, err := c.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	t, err := openSocketTable()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	s := tcpSocket{family: unix.AF_INET}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	binary.BigEndian.PutUint16(s.id[0:], at.Port())
	address := at.Addr().Unmap().As4()
	copy(s.id[4:], address[:])
	for i := socketIDSize - 8; i < socketIDSize; i++ { // INET_DIAG_NOCOOKIE: whichever socket it is
		s.id[i] = 0xff
	}
	ended, err := t.destroy(s)
	if err == nil && !ended {
		err = errors.New("the kernel does not find a socket that is there")
	}
	return err
}

// socketsOf are the inodes of the sockets that a process has.
func socketsOf(pid int) (map[uint32]bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint32]bool{}
	for _, f := range files {
		target, err := os.Readlink(dir + "/" + f.Name())
		if err != nil {
			continue // it was closed meanwhile
		}
		text, isSocket := strings.CutPrefix(target, "socket:[")
		if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); isSocket && err == nil {
			out[uint32(n)] = true
		}
	}
	return out, nil
}
