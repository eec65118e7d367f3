package registry

import (
	"fmt"
	"testing"
)

func TestPortStates(t *testing.T) {
	t.Parallel()
	p := ReadPortStates([]string{"9090=listener", "80=closed", "80=open", "x=closed", "0=closed", "65536=closed",
		"8080=loopback"})
	if want := PortStates("80=closed,8080=loopback,9090=listener"); p != want {
		t.Errorf("got %q, want %q", p, want)
	}
	for port, want := range map[uint32]PortState{80: PortClosed, 8080: PortLoopback, 9090: PortListener,
		808: PortServed} {
		if got := p.At(port); got != want {
			t.Errorf("port %d: got %q, want %q", port, got, want)
		}
	}
	if again := ReadPortStates(p.List()); again != p || len(PortStates("").List()) != 0 {
		t.Errorf("read again: %q", again)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("%d=closed", i+1))
	}
	if got := len(ReadPortStates(many).List()); got != maxPortStates {
		t.Errorf("%d states are kept, want %d", got, maxPortStates)
	}
}
