package crowd

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
	c := New(nil, 4)
	var callers []*caller
	var conns []*Conn
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
	if open, cuts := c.Numbers(); open != 0 || cuts != 2 || len(c.open) != 0 {
		t.Errorf("%d are open, %d were cut, %v are remembered", open, cuts, c.open)
	}
}

// Who has left counts no more, and is not cut off for others.
func TestLeave(t *testing.T) {
	t.Parallel()
	c := New(nil, 1)
	known := &caller{from: "10.0.0.1:1"}
	one, _ := c.add(known)
	one.Leave()
	for range 3 {
		if _, cut := c.add(&caller{from: "10.0.0.1:2"}); cut != nil {
			if err := cut.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if open, cuts := c.Numbers(); known.closed || open != 1 || cuts != 2 {
		t.Errorf("closed %v, %d are open, %d were cut", known.closed, open, cuts)
	}
}

// Strangers are told apart by address, of IPv6 by the network of one machine.
func TestHousehold(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1/32", "[::ffff:10.0.0.1]:1": "10.0.0.1/32", "[2001:db8::1]:5": "2001:db8::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "": "invalid Prefix", "@": "invalid Prefix",
	} {
		if got := Household(remote).String(); got != want {
			t.Errorf("%q is %s, want %s", remote, got, want)
		}
	}
}
