package connlimit

import (
	"errors"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pending is a listener with connections from these addresses.
type pending []string

func (p *pending) Accept() (net.Conn, error) {
	if len(*p) == 0 {
		return nil, io.EOF
	}
	from := (*p)[0]
	*p = (*p)[1:]
	return &conn{from: from}, nil
}
func (p *pending) Close() error   { return nil }
func (p *pending) Addr() net.Addr { return address("") }

type conn struct {
	net.Conn
	from   string
	closed bool
}

func (c *conn) RemoteAddr() net.Addr { return address(c.from) }
func (c *conn) Close() error         { c.closed = true; return nil }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func TestLimits(t *testing.T) {
	t.Parallel()
	clients := &pending{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:4",
		"10.0.0.4:1"}
	l := New(clients, 4, 2)
	accept := func(want string) *Conn {
		t.Helper()
		c, err := l.Accept()
		if err != nil || c.RemoteAddr().String() != want {
			t.Fatalf("got %v, %v, want %s", c, err, want)
		}
		return c.(*Conn)
	}
	first := accept("10.0.0.1:1")
	second := accept("10.0.0.1:2")
	accept("10.0.0.2:1") // the third one of 10.0.0.1 was refused
	accept("10.0.0.3:1")
	first.Leave()
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	accept("10.0.0.1:4")
	if _, err := l.Accept(); !errors.Is(err, io.EOF) { // 10.0.0.4 is the fifth
		t.Errorf("got %v", err)
	}
	if open, refused := l.Numbers(); open != 4 || refused != 2 {
		t.Errorf("%d are open, %d were refused, want 4 and 2", open, refused)
	}
	if err := second.Close(); err != nil || !second.Conn.(*conn).closed {
		t.Errorf("close: %v", err)
	}
	if open, _ := l.Numbers(); open != 3 {
		t.Errorf("%d are open, want 3", open)
	}
}

// Each key has so many connections, which share a value.
func TestLimiter(t *testing.T) {
	t.Parallel()
	made := 0
	l := NewLimiter(10, 2, func() int { made++; return made })
	first, leave, ok := l.Enter("a")
	second, _, _ := l.Enter("a")
	other, _, _ := l.Enter("b")
	if !ok || first != 1 || second != 1 || other != 2 {
		t.Errorf("values %d, %d and %d, want 1, 1 and 2", first, second, other)
	}
	if _, _, ok := l.Enter("a"); ok {
		t.Error("a third connection of a key")
	}
	leave()
	leave()
	if _, _, ok := l.Enter("a"); !ok {
		t.Error("no connection after one has left")
	}
	if open, refused := l.Numbers(); open != 3 || refused != 1 {
		t.Errorf("%d are open, %d were refused, want 3 and 1", open, refused)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1/32", "[::ffff:10.0.0.1]:1": "10.0.0.1/32", "[2001:db8::1]:5": "2001:db8::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "": "invalid Prefix", "@": "invalid Prefix",
	} {
		if got := Source(remote).String(); got != want {
			t.Errorf("%q: got %s, want %s", remote, got, want)
		}
	}
}
