package server

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// remote is a connection from an address.
type remote struct {
	net.Conn
	port int
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: r.port} }

// A connection without a certificate is closed after a while, unless a token made it one of a
// workload, whose connections are limited.
func TestConnectionWithToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited := newLimitedTLS(nil, 1, nil, prometheus.NewRegistry(), testlog.New(t))
		open := func(port int) net.Conn {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = there.Close() })
			return limited.await(remote{here, port}, remote{here, port})
		}
		web := spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
		identify := func(port int) error {
			return limited.identified(peer.NewContext(t.Context(), &peer.Peer{Addr: remote{port: port}.RemoteAddr()}), web)
		}
		closed := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(-time.Second))
			_, err := c.Read(make([]byte, 1))
			netErr, ok := err.(net.Error)
			return !ok || !netErr.Timeout()
		}
		first, second := open(1), open(2)
		for range 2 { // two streams
			if err := identify(1); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := identify(2); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a workload has more connections than allowed: %v", err)
			}
		}
		time.Sleep(2 * unauthenticatedTime)
		if closed(first) {
			t.Error("a connection with a token was closed")
		}
		if !closed(second) {
			t.Error("a connection without a token is still open")
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		third := open(3)
		if err := identify(3); err != nil {
			t.Errorf("after the first connection has ended: %v", err)
		}
		if err := third.Close(); err != nil {
			t.Error(err)
		}
	})
}
