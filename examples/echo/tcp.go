package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// runTCP greets every connection and sends back what it sends.
func (c *config) runTCP(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return errors.Join(fmt.Errorf("accept: %w", err), l.Close())
		}
		wg.Go(func() { c.talk(ctx, conn) })
	}
}

// talk ends with the connection, or with ctx. What goes wrong with one connection is its client's
// to see.
func (c *config) talk(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s\n", c.name, c.version); err != nil {
		return
	}
	_, _ = io.Copy(conn, conn)
}
