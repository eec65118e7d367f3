package crowd

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Listener is a listener that bounds how many connections are open. For one too many, whoever has the most loses the
// oldest, so that one that hoards them keeps nobody else out. Safe for concurrent use.
type Listener struct {
	net.Listener
	most int // set once

	mu    sync.Mutex
	count int                      // guarded by mu
	cuts  int                      // guarded by mu: how many were closed
	last  uint64                   // guarded by mu: the number of the latest one
	open  map[netip.Prefix][]*Conn // guarded by mu: by where they are from, the oldest first
}

// Conn is a connection that counts, until it is closed or leaves.
type Conn struct {
	net.Conn
	crowd  *Listener
	from   netip.Prefix
	number uint64 // set once
}

// New makes a listener of l that has most connections.
func New(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: most, open: map[netip.Prefix][]*Conn{}}
}

// Accept implements net.Listener; what it returns is a *Conn.
func (c *Listener) Accept() (net.Conn, error) {
	inner, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one, cut := c.add(inner)
	if cut != nil {
		_ = cut.Close() // who serves it finds out
	}
	return one, nil
}

// add counts a connection, and returns the one that has to go for it; nil: none.
func (c *Listener) add(inner net.Conn) (one, cut *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	one = &Conn{Conn: inner, crowd: c, from: Household(inner.RemoteAddr().String()), number: c.last}
	c.open[one.from] = append(c.open[one.from], one)
	if c.count++; c.count <= c.most {
		return one, nil
	}
	c.cuts++
	var largest []*Conn
	for _, open := range c.open {
		if len(open) > len(largest) || len(open) == len(largest) && open[0].number < largest[0].number {
			largest = open
		}
	}
	return one, largest[0]
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}

// Leave has a connection count no more: it belongs to somebody who is no stranger any more. It may be called twice.
func (c *Conn) Leave() { c.crowd.remove(c) }

// remove counts a connection no more; it may be asked for twice.
func (c *Listener) remove(one *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.open[one.from], one)
	if i < 0 {
		return
	}
	c.count--
	if c.open[one.from] = slices.Delete(c.open[one.from], i, i+1); len(c.open[one.from]) == 0 {
		delete(c.open, one.from)
	}
}

// Numbers are how many connections are open, and how many were closed because there were too many.
func (c *Listener) Numbers() (open, cuts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.cuts
}

// Household is who is at an address: one of IPv4, or the 64 bits of a network of IPv6 that a single machine commands. The
// zero one stands for what cannot be read.
func Household(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil { // no such length
		return netip.Prefix{}
	}
	return p
}
