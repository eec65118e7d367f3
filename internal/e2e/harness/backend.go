package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Seen is a request as a backend saw it; it is also the body of its answer.
type Seen struct {
	Backend string      `json:"backend"`
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Header  http.Header `json:"header"`
}

// Backend is an HTTP server in the test process that answers with what it saw.
//
// A request may ask for trouble: header x-delay waits (a Go duration), header x-status answers with
// that status.
type Backend struct {
	Name string
	// Address is its IP address and port.
	Address string
	// Fail, when set, makes it answer 503 to everything.
	Fail atomic.Bool

	server   *http.Server
	requests atomic.Int64

	mu   sync.Mutex
	seen []Seen // guarded by mu; the last hundred
}

// NewBackend starts one at address, "127.0.0.2:8080"; it ends with the test.
func NewBackend(t testing.TB, name, address string) *Backend {
	t.Helper()
	return (*Namespace)(nil).Backend(t, name, address)
}

// Backend starts one in the namespace.
func (ns *Namespace) Backend(t testing.TB, name, address string) *Backend {
	t.Helper()
	l := ns.Listen(t, address)
	b := &Backend{Name: name, Address: l.Addr().String()}
	b.server = ServeHTTP(t, l, b)
	return b
}

// ServeHTTP serves HTTP/1.1 and HTTP/2 on a listener until the test ends, which cuts connections.
func ServeHTTP(t testing.TB, l net.Listener, h http.Handler) *http.Server {
	t.Helper()
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols),
		ErrorLog: log.New(io.Discard, "", 0)} // some tests want handshakes that fail
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve %s: %v", l.Addr(), err)
		}
	}()
	t.Cleanup(func() {
		_ = s.Close() // the peers may have cut connections
		<-done
	})
	return s
}

// ServeHTTP answers one request.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	s := Seen{Backend: b.Name, Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Header: r.Header}
	b.mu.Lock()
	b.seen = append(b.seen, s)
	if len(b.seen) > 100 {
		b.seen = b.seen[1:]
	}
	b.mu.Unlock()
	if d, err := time.ParseDuration(r.Header.Get("x-delay")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("x-backend", b.Name)
	status := http.StatusOK
	if n, err := strconv.Atoi(r.Header.Get("x-status")); err == nil {
		status = n
	}
	if b.Fail.Load() {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(s) // it fails only when the client is gone
}

// Requests is how many it has seen.
func (b *Backend) Requests() int64 { return b.requests.Load() }

// Last are the last hundred requests, the newest last.
func (b *Backend) Last() []Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// Drain stops it gracefully: open requests are answered, new connections refused.
func (b *Backend) Drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return b.server.Shutdown(ctx)
}

// TCPEcho is a TCP server that greets with its name and sends back what it gets, a line at a time.
func TCPEcho(t testing.TB, name, address string) net.Addr {
	t.Helper()
	return (*Namespace)(nil).TCPEcho(t, name, address)
}

// TCPEcho starts one in the namespace.
func (ns *Namespace) TCPEcho(t testing.TB, name, address string) net.Addr {
	t.Helper()
	return ServeEcho(t, name, ns.Listen(t, address))
}

// ServeEcho greets with name and sends back what it gets on every connection of a listener.
func ServeEcho(t testing.TB, name string, l net.Listener) net.Addr {
	t.Helper()
	serveTCP(t, l, func(c net.Conn) {
		if _, err := fmt.Fprintln(c, name); err == nil {
			_, _ = io.Copy(c, c) // ends with the connection, however that ends
		}
	})
	return l.Addr()
}

// serveTCP serves the connections of a listener, and closes all of them when the test ends.
func serveTCP(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	var open sync.WaitGroup
	var conns sync.Map
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("serve %s: %v", l.Addr(), err)
				}
				return
			}
			conns.Store(c, nil)
			open.Go(func() {
				defer conns.Delete(c)
				defer func() { _ = c.Close() }() // the peer may have cut it
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close %s: %v", l.Addr(), err)
		}
		conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true }) // the peer may have cut it
		open.Wait()
	})
}
