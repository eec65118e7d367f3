package agent

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The kernel's program that chooses sockets. Source: Linux, include/uapi/linux/inet_diag.h (struct inet_diag_bc_op, struct
// inet_diag_hostcond) and net/ipv4/inet_diag.c.
const (
	filterAttribute = 1 // INET_DIAG_REQ_BYTECODE
	filterJump      = 1 // INET_DIAG_BC_JMP
	filterRemote    = 8 // INET_DIAG_BC_D_COND
	filterOp        = 4 // the size of an operation
	filterHost      = 8 // the size of a condition before its address
	// filterMost bounds the addresses for which the kernel chooses: it compares each socket with each of them.
	filterMost = 64
)

// remoteFilter is the program that takes the sockets with one of these remote addresses; nil takes all, which is cheaper
// than to compare each with many. An address of IPv4 stands also for sockets of IPv6 that are connected with it.
func remoteFilter(addresses map[netip.Addr]bool) []byte {
	if len(addresses) > filterMost {
		return nil
	}
	rest := 0
	for a := range addresses {
		rest += filterStep(a)
	}
	var out []byte
	for a := range addresses {
		rest -= filterStep(a)
		family := byte(unix.AF_INET6)
		if a.Is4() {
			family = unix.AF_INET
		}
		size := filterStep(a) - filterOp
		out = append(out, filterRemote, byte(size))                              // when it matches: the next operation
		out = binary.NativeEndian.AppendUint16(out, uint16(noMatch(size, rest))) // otherwise: the one after it
		out = append(out, family, byte(a.BitLen()), 0, 0)
		out = binary.NativeEndian.AppendUint32(out, ^uint32(0)) // any port
		out = append(out, a.AsSlice()...)
		out = append(out, filterJump, filterOp)
		out = binary.NativeEndian.AppendUint16(out, uint16(filterOp+rest)) // to the end: it is taken
	}
	return out
}

// filterStep is the size of what compares with an address.
func filterStep(a netip.Addr) int { return filterOp + filterHost + a.BitLen()/8 + filterOp }

// noMatch is how far to go from a condition of a size that does not hold: to the next one, or beyond the end, which refuses.
func noMatch(size, rest int) int {
	if rest == 0 {
		return size + 2*filterOp
	}
	return size + filterOp
}

// withFilter is a request with such a program.
func withFilter(request, filter []byte) []byte {
	if len(filter) == 0 {
		return request
	}
	request = binary.NativeEndian.AppendUint16(request, uint16(unix.SizeofNlAttr+len(filter)))
	request = binary.NativeEndian.AppendUint16(request, filterAttribute)
	request = append(request, filter...)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	return request
}
