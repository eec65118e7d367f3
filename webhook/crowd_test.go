package webhook

import (
	"net"
	"testing"
)

// caller is a connection from an address.
type caller struct {
	net.Conn
	from   string
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return address(c.from) }
func (c *caller) Close() error         { c.closed = true; return nil }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// Whoever hoards connections loses the oldest of his own; others keep theirs.
func TestCrowd(t *testing.T) {
	t.Parallel()
	c := newCrowd(nowhere{}, 4)
	var callers []*caller
	var conns []*conn
	for _, from := range []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.3:1", "10.0.0.2:3", "10.0.0.4:1"} {
		caller := &caller{from: from}
		one, cut := c.add(caller)
		if cut != nil {
			if err := cut.Close(); err != nil {
				t.Error(err)
			}
		}
		callers, conns = append(callers, caller), append(conns, one)
	}
	for i, want := range []bool{false, true, true, false, false, false} {
		if callers[i].closed != want {
			t.Errorf("%s is closed: %v, want %v", callers[i].from, callers[i].closed, want)
		}
	}
	for range 2 { // it may be closed twice
		for _, one := range conns {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if open, cuts := c.numbers(); open != 0 || cuts != 2 || len(c.open) != 0 {
		t.Errorf("%d are open, %d were cut, %v are remembered", open, cuts, c.open)
	}
}
