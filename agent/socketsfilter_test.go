package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel answers with the sockets that are asked for, however many addresses there are and whichever of them it is,
// and up to filterMost with no others.
func TestRemoteFilter(t *testing.T) {
	t.Parallel()
	ends(t, "127.0.21.37", "127.0.21.1", "127.0.21.1")
	ends(t, "127.0.21.37", "127.0.21.1", "::")
	ends(t, "127.0.21.38", "127.0.21.1", "127.0.21.1")
	ends(t, "127.0.21.38", "127.0.21.1", "::")
	table, err := openSocketTable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.close(); err != nil {
			t.Error(err)
		}
	})
	wanted := netip.MustParseAddr("127.0.21.37")
	for _, others := range []int{0, 1, 7, filterMost - 1, filterMost, 1000} {
		addresses := map[netip.Addr]bool{wanted: true}
		for i := range others {
			text := fmt.Sprintf("10.9.%d.%d", i/250, i%250)
			if i%2 == 0 {
				text = fmt.Sprintf("fd00:9::%x", i)
			}
			addresses[netip.MustParseAddr(text)] = true
		}
		found, err := table.list(addresses)
		if len(found) != 2 || err != nil {
			t.Errorf("with %d others: got %d sockets, %v, want 2", others, len(found), err)
		}
		answers := 0
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			ask := withFilter(socketRequest(socketsByFamily, unix.NLM_F_DUMP, family, openStates, [socketIDSize]byte{}), remoteFilter(addresses))
			if err := table.exchange(ask, func([]byte) { answers++ }); err != nil {
				t.Fatal(err)
			}
		}
		if filtered := answers == 2; filtered != (others < filterMost) {
			t.Errorf("with %d others: the kernel gives %d sockets", others, answers)
		}
	}
}

// So it does for an address of IPv6.
func TestRemoteFilterIPv6(t *testing.T) {
	t.Parallel()
	near, _ := ends(t, "::1", "::1", "::1")
	table, err := openSocketTable()
	if err != nil {
		t.Fatal(err)
	}
	found, err := table.list(map[netip.Addr]bool{netip.IPv6Loopback(): true, netip.MustParseAddr("10.9.0.1"): true})
	if err := errors.Join(err, table.close()); err != nil {
		t.Fatal(err)
	}
	port := near.LocalAddr().(*net.TCPAddr).Port
	for _, s := range found {
		if s.remote == netip.IPv6Loopback() && int(binary.BigEndian.Uint16(s.id[2:])) == port {
			return
		}
	}
	t.Errorf("port %d is not among %d sockets", port, len(found))
}
