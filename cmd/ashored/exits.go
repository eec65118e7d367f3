package main

import (
	"net"
	"sync"
)

// exits is a listener that can close all connections that came through it. gRPC waits for those
// that are at their handshake, and has nothing that ends them. Safe for concurrent use.
type exits struct {
	net.Listener

	mu   sync.Mutex
	open map[*exit]struct{} // guarded by mu; nil: closeAll was called
}

// exit is a connection that came through exits.
type exit struct {
	net.Conn
	from *exits
}

func newExits(l net.Listener) *exits { return &exits{Listener: l, open: map[*exit]struct{}{}} }

// Accept implements net.Listener.
func (l *exits) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	e := &exit{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		_ = c.Close() // it came as everybody had to go
	} else {
		l.open[e] = struct{}{}
	}
	return e, nil
}

// closeAll closes all connections, and all that come.
func (l *exits) closeAll() {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for e := range open {
		_ = e.Conn.Close() // who serves it finds out, and closes it too
	}
}

// Close implements net.Conn.
func (e *exit) Close() error {
	e.from.mu.Lock()
	delete(e.from.open, e)
	e.from.mu.Unlock()
	return e.Conn.Close()
}
