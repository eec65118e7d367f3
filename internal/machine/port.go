package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"
)

// Socket is a port that a program listens at.
type Socket struct {
	Address netip.AddrPort
	UDP     bool
}

// Owner is a process that listens at a port.
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

// Listener is a process that listens at a port.
type Listener struct {
	Socket
	Owner
}

// PortOwner returns the process that listens at s, or nil. Only root can find the processes of
// other users. Otherwise such an owner has no PID.
func PortOwner(s Socket) (*Owner, error) {
	all, err := Listeners(s.UDP)
	for _, l := range all {
		at, want := l.Address.Addr(), s.Address.Addr()
		if l.Address.Port() == s.Address.Port() && (at == want || at.IsUnspecified() || want.IsUnspecified()) {
			return &l.Owner, nil
		}
	}
	return nil, err
}

// Listeners returns all listeners of TCP or of UDP, once for each process and socket. See PortOwner
// for the PID.
func Listeners(udp bool) ([]Listener, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	sockets, err := listening(fs, udp)
	if err != nil {
		return nil, err
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	var out []Listener
	found := map[string]bool{}
	for _, p := range procs {
		files, err := p.FileDescriptorTargets()
		if err != nil {
			continue // it has ended, or is another user's
		}
		slices.Sort(files)
		for _, file := range slices.Compact(files) {
			if s, ok := sockets[file]; ok {
				name, _ := p.Comm() // it may have ended: the number is left
				out = append(out, Listener{s, Owner{name, p.PID}})
				found[file] = true
			}
		}
	}
	for file, s := range sockets {
		if !found[file] {
			out = append(out, Listener{Socket: s})
		}
	}
	return out, nil
}

// listening returns the sockets by their names in /proc, "socket:[1234]".
func listening(fs procfs.FS, udp bool) (map[string]Socket, error) {
	tables := []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6}
	if udp { // its lines are of the same type
		tables = []func() (procfs.NetTCP, error){
			func() (procfs.NetTCP, error) { lines, err := fs.NetUDP(); return procfs.NetTCP(lines), err },
			func() (procfs.NetTCP, error) { lines, err := fs.NetUDP6(); return procfs.NetTCP(lines), err },
		}
	}
	out := map[string]Socket{}
	for _, read := range tables {
		lines, err := read()
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the kernel has no IPv6
			return nil, err
		}
		for _, l := range lines {
			if udp || l.St == stateListen {
				at, _ := netip.AddrFromSlice(l.LocalAddr)
				name := "socket:[" + strconv.FormatUint(l.Inode, 10) + "]"
				out[name] = Socket{netip.AddrPortFrom(at.Unmap(), uint16(l.LocalPort)), udp}
			}
		}
	}
	return out, nil
}
