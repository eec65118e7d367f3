package connlimit

import (
	"net"
	"net/netip"
)

// Listener limits how many connections are open, in all and from each Source. Safe for concurrent
// use.
type Listener struct {
	net.Listener
	*Limiter[struct{}]
}

// New returns a listener that has at most total connections from l, and perSource from each Source.
func New(l net.Listener, total, perSource int) *Listener {
	return &Listener{l, NewLimiter(total, perSource, func() (none struct{}) { return none })}
}

// Accept implements net.Listener. The connection that it returns is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if _, leave, ok := l.Enter(Source(inner.RemoteAddr().String()).String()); ok {
			return NewConn(inner, leave), nil
		}
		_ = inner.Close() // nothing was read or written
	}
}

// Conn is a connection that counts until it is closed or leaves.
type Conn struct {
	net.Conn
	// Leave stops counting the connection. A second call does nothing.
	Leave func()
}

// NewConn returns a connection that calls leave when it is closed.
func NewConn(c net.Conn, leave func()) *Conn { return &Conn{c, leave} }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}

// Source returns what identifies the client at an "address:port": the address for IPv4, and for
// IPv6 the network of 64 bits that one machine may use. It is invalid if remote cannot be parsed.
func Source(remote string) netip.Prefix {
	at, _ := netip.ParseAddrPort(remote)
	return Network(at.Addr())
}

// Network is Source for an address.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}
