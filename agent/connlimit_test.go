package agent

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// Connections beyond the limit close those that were without a request for longest; one more client
// is answered.
func TestConnLimit(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.41.25:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveHTTP(ctx, l, http.NotFoundHandler(), testlog.New(t)) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: agent\r\n\r\n")); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	silent, kept := dial(), dial()
	for _, c := range []net.Conn{silent, kept} {
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	for range maxConns - 1 { // one more than there is room for
		c := dial()
		if err := ask(c); err != nil {
			t.Fatalf("a new connection: %v", err)
		}
	}
	if err := silent.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that was silent for longest: %v, want its end", err)
	}
	if err := ask(kept); err != nil {
		t.Errorf("a connection that was used after that one: %v", err)
	}
}
