package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"
)

// Socket is a port that a program listens at.
type Socket struct {
	Address netip.AddrPort
	UDP     bool
}

// Owner is a process that has a port.
type Owner struct {
	Name string
	PID  int
}

// String is "nginx (process 123)".
func (o Owner) String() string {
	if o.PID == 0 {
		return "another program"
	}
	return fmt.Sprintf("%s (process %d)", o.Name, o.PID)
}

// stateListen is that of a TCP socket that listens: include/net/tcp_states.h.
const stateListen = 0x0a

// PortOwner is the process that keeps others from listening at s; nil when nobody does. Only root can find the processes
// of other users: for others such an owner has no PID.
func PortOwner(s Socket) (*Owner, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	inodes, err := listening(fs, s)
	if err != nil || len(inodes) == 0 {
		return nil, err
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		files, err := p.FileDescriptorTargets()
		if err != nil {
			continue // it has ended, or is another user's
		}
		for _, inode := range inodes {
			if slices.Contains(files, "socket:["+strconv.FormatUint(inode, 10)+"]") {
				name, _ := p.Comm() // it may have ended: the number is left
				return &Owner{name, p.PID}, nil
			}
		}
	}
	return &Owner{}, nil
}

// listening are the inodes of the sockets that conflict with s.
func listening(fs procfs.FS, s Socket) ([]uint64, error) {
	var out []uint64
	add := func(ip []byte, port, state, inode uint64) {
		at, _ := netip.AddrFromSlice(ip)
		at, want := at.Unmap(), s.Address.Addr()
		if port == uint64(s.Address.Port()) && (s.UDP || state == stateListen) &&
			(at == want || at.IsUnspecified() || want.IsUnspecified()) {
			out = append(out, inode)
		}
	}
	if s.UDP {
		for _, read := range []func() (procfs.NetUDP, error){fs.NetUDP, fs.NetUDP6} {
			lines, err := read()
			if err != nil {
				return nil, err
			}
			for _, l := range lines {
				add(l.LocalAddr, l.LocalPort, l.St, l.Inode)
			}
		}
		return out, nil
	}
	for _, read := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} {
		lines, err := read()
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			add(l.LocalAddr, l.LocalPort, l.St, l.Inode)
		}
	}
	return out, nil
}
