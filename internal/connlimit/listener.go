package connlimit

import (
	"net"
	"net/netip"
	"sync"
)

// Listener limits how many connections are open. Safe for concurrent use.
type Listener struct {
	net.Listener
	total, perSource int // immutable

	mu      sync.Mutex // guards the following
	open    int
	sources map[netip.Prefix]int // connections that are open, by Source
	refused int
}

// New returns a listener that has at most total connections from l, and perSource from each Source.
func New(l net.Listener, total, perSource int) *Listener {
	return &Listener{Listener: l, total: total, perSource: perSource, sources: map[netip.Prefix]int{}}
}

// Accept implements net.Listener. The connection that it returns is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: inner, limit: l, source: Source(inner.RemoteAddr().String())}
		if l.enter(c) {
			return c, nil
		}
		_ = inner.Close() // nothing was read or written
	}
}

// enter counts a connection, and reports whether it is within the limits.
func (l *Listener) enter(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.total || l.sources[c.source] >= l.perSource {
		l.refused++
		return false
	}
	l.open++
	l.sources[c.source]++
	return true
}

// Numbers returns how many connections are open, and how many were refused.
func (l *Listener) Numbers() (open, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.refused
}

// Conn is a connection that counts until it is closed or leaves.
type Conn struct {
	net.Conn
	limit  *Listener
	source netip.Prefix
	left   bool // guarded by limit.mu
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}

// Leave stops counting the connection, because its client has authenticated. A second call does
// nothing.
func (c *Conn) Leave() {
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.left {
		return
	}
	c.left = true
	l.open--
	if l.sources[c.source]--; l.sources[c.source] == 0 {
		delete(l.sources, c.source)
	}
}

// Source returns what identifies the client at an "address:port": the address for IPv4, and for
// IPv6 the network of 64 bits that one machine may use. It is invalid if remote cannot be parsed.
func Source(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}
