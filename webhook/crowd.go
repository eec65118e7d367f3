package webhook

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// crowd is a listener that bounds how many connections are open. For one too many, whoever has the most loses the
// oldest, so that one that hoards them keeps nobody else out. Safe for concurrent use.
type crowd struct {
	net.Listener
	most int // set once

	mu    sync.Mutex
	count int                      // guarded by mu
	cuts  int                      // guarded by mu: how many were closed
	last  uint64                   // guarded by mu: the number of the latest one
	open  map[netip.Prefix][]*conn // guarded by mu: by where they are from, the oldest first
}

// conn is a connection that counts.
type conn struct {
	net.Conn
	crowd  *crowd
	from   netip.Prefix
	number uint64 // set once
}

func newCrowd(l net.Listener, most int) *crowd {
	return &crowd{Listener: l, most: most, open: map[netip.Prefix][]*conn{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
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
func (c *crowd) add(inner net.Conn) (one, cut *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	one = &conn{Conn: inner, crowd: c, from: householdOf(inner.RemoteAddr().String()), number: c.last}
	c.open[one.from] = append(c.open[one.from], one)
	if c.count++; c.count <= c.most {
		return one, nil
	}
	c.cuts++
	var largest []*conn
	for _, open := range c.open {
		if len(open) > len(largest) || len(open) == len(largest) && open[0].number < largest[0].number {
			largest = open
		}
	}
	return one, largest[0]
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.crowd.remove(c)
	return c.Conn.Close()
}

// remove counts a connection no more; it may be asked for twice.
func (c *crowd) remove(one *conn) {
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

// numbers are how many connections are open, and how many were closed because there were too many.
func (c *crowd) numbers() (open, cuts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.cuts
}
