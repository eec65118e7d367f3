package virtualip

import (
	"errors"
	"net/netip"
	"testing"
)

// No address is given twice, and each is of its range; when all are given that is said.
func TestChoose(t *testing.T) {
	t.Parallel()
	taken := map[netip.Addr]bool{}
	has := func(a netip.Addr) bool { return taken[a] }
	in4, in6 := netip.MustParsePrefix(range4), netip.MustParsePrefix(range6)
	for i := range 2000 {
		v4, v6, err := Choose("one name", i, has)
		if err != nil || taken[v4] || taken[v6] || !in4.Contains(v4) || !in6.Contains(v6) {
			t.Fatalf("service %d: got %s, %s, %v", i, v4, v6, err)
		}
		taken[v4], taken[v6] = true, true
	}
	again, _, err := Choose("one name", 0, func(netip.Addr) bool { return false })
	if err != nil || !taken[again] {
		t.Errorf("the place does not depend on the key alone: got %s, %v", again, err)
	}
	if _, _, err := Choose("another", hosts4, has); !errors.Is(err, ErrExhausted) {
		t.Errorf("got %v, want ErrExhausted", err)
	}
}

// The ends of the IPv4 range are nobody's.
func TestEnds(t *testing.T) {
	t.Parallel()
	if first, last := address4(0), address4(hosts4-1); first.String() != "240.240.0.1" || last.String() != "240.240.255.254" {
		t.Errorf("got %s to %s", first, last)
	}
}
