package mcptest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// host is this package's part of the loopback network.
const host = "127.0.71.1"

// listenTimeout is how long to wait for an address that is in use.
const listenTimeout = 30 * time.Second

// Serve serves on an address until stop is called or the test ends; "" is any port.
func Serve(t testing.TB, address string, register func(*grpc.Server), opts ...grpc.ServerOption) (at string,
	stop func()) {
	t.Helper()
	if address == "" {
		address = net.JoinHostPort(host, "0")
	}
	l, err := net.Listen("tcp", address)
	for end := time.Now().Add(listenTimeout); err != nil && time.Now().Before(end); l, err = net.Listen("tcp", address) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("serve MCP: %v", err)
	}
	g := grpc.NewServer(opts...)
	register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }() // ends with Stop
	stop = sync.OnceFunc(func() { g.Stop(); <-done })
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// received are the messages of a stream, until it ends.
func received[T any](ctx context.Context, receive func() (T, error)) <-chan T {
	out := make(chan T)
	go func() {
		defer close(out)
		for {
			m, err := receive()
			if err != nil {
				return
			}
			select {
			case out <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
