package virtualip

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
)

// The ranges of virtual addresses: Istio's for ServiceEntries. Both are reserved and routed nowhere.
const (
	range4 = "240.240.0.0/16"
	range6 = "2001:2::/48"
	// hosts4 counts the addresses of range4 without the first and the last one, which some systems take for a
	// network and a broadcast address.
	hosts4 = 1<<16 - 2
)

// ErrExhausted says that every virtual IPv4 address is allocated.
var ErrExhausted = errors.New("all 65534 virtual addresses of 240.240.0.0/16 are allocated")

// Choose returns addresses for a service that has none: the first free ones after a place that the hash of its key chooses. services
// is how many have theirs, and taken says whether an address is one of them. Errors: ErrExhausted.
func Choose(key string, services int, taken func(netip.Addr) bool) (v4, v6 netip.Addr, err error) {
	if services >= hosts4 {
		return v4, v6, ErrExhausted
	}
	hash := sha256.Sum256([]byte(key))
	v4 = free(taken, hosts4, binary.BigEndian.Uint64(hash[:]), address4)
	v6 = free(taken, 1<<63, binary.BigEndian.Uint64(hash[8:]), address6)
	return v4, v6, nil
}

// free returns the first address that is not taken, of n, from place start on. There is one.
func free(taken func(netip.Addr) bool, n, start uint64, address func(uint64) netip.Addr) netip.Addr {
	a := address(start % n)
	for i := start % n; taken(a); a = address(i) {
		i = (i + 1) % n
	}
	return a
}

// address4 is the i-th address of range4, from 0.
func address4(i uint64) netip.Addr {
	b := netip.MustParsePrefix(range4).Addr().As4()
	binary.BigEndian.PutUint16(b[2:], uint16(i+1))
	return netip.AddrFrom4(b)
}

// address6 is the i-th address of range6, from 0.
func address6(i uint64) netip.Addr {
	b := netip.MustParsePrefix(range6).Addr().As16()
	binary.BigEndian.PutUint64(b[8:], i+1)
	return netip.AddrFrom16(b)
}
