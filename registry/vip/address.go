package vip

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/ashore-mesh/ashore/registry"
)

// capacity is the number of addresses in 240.240.0.0/16 without the first and the last one, which
// some systems use for the network and for broadcast. The IPv6 addresses are in 2001:2::/48.
// Source: Istio uses these ranges for ServiceEntries.
const capacity = 1<<16 - 2

// ErrExhausted means that all addresses are allocated.
var ErrExhausted = errors.New("all 65534 virtual IPs of 240.240.0.0/16 are allocated: " + remedy)

// remedy says what to do if few virtual IPs are left.
const remedy = `release unused ones with "ashorectl vip release", or set "addresses" of services`

// address returns the virtual IPs with an index from 0 to capacity-1.
func address(i int) registry.VIP {
	v4, v6 := [4]byte{240, 240}, [16]byte{0x20, 0x01, 0, 2}
	binary.BigEndian.PutUint16(v4[2:], uint16(i+1))
	binary.BigEndian.PutUint16(v6[14:], uint16(i+1))
	return registry.VIP{IPv4: netip.AddrFrom4(v4), IPv6: netip.AddrFrom16(v6)}
}

// indexOf is the reverse of address. It returns false if a is not one of the IPv4 addresses.
func indexOf(a netip.Addr) (int, bool) {
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	i := int(binary.BigEndian.Uint16(b[2:])) - 1
	return i, b[0] == 240 && b[1] == 240 && i >= 0 && i < capacity
}

// choose returns the first free index, starting at a hash of the host. It returns ErrExhausted if
// there is none.
func choose(host string, taken func(int) bool) (int, error) {
	hash := sha256.Sum256([]byte(host))
	start := int(binary.BigEndian.Uint64(hash[:]) % capacity)
	for n := range capacity {
		if i := (start + n) % capacity; !taken(i) {
			return i, nil
		}
	}
	return 0, ErrExhausted
}
