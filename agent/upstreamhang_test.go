package agent

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds"
)

// silenced is a connection whose reader hears nothing any more once it is hushed, as of a machine that has lost power.
type silenced struct {
	net.Conn
	hushed chan struct{} // closed when it is
	ended  chan struct{} // closed with the connection
	once   sync.Once
}

func (s *silenced) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	select {
	case <-s.hushed:
		<-s.ended
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (s *silenced) Close() error {
	s.once.Do(func() { close(s.ended) })
	return s.Conn.Close()
}

// A control plane that keeps its connections and says nothing is noticed within the bound that the documentation states, and one
// that is well for hours does not find that it is asked too often.
func TestUpstreamHangs(t *testing.T) {
	t.Parallel()
	log := testlog.New(t)
	synctest.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(1 << 20)
		server := grpc.NewServer(append(xds.ServerOptions(), grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
			<-st.Context().Done()
			return st.Context().Err()
		}))...)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		conn := &silenced{hushed: make(chan struct{}), ended: make(chan struct{})}
		p, err := newProxy(proxyConfig{Node: testNode(t), Addresses: []string{"127.0.16.1:1"}, Log: log, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			var err error
			conn.Conn, err = listener.DialContext(ctx)
			return conn, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := p.connect(t.Context(), "127.0.16.1:1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		select {
		case <-l.done:
			t.Fatalf("ended after %v although the control plane is well: %v", time.Since(l.opened), l.readErr)
		default:
		}
		hung := time.Now()
		close(conn.hushed)
		<-l.done
		if took := time.Since(hung); took > pingGap+pingTimeout {
			t.Errorf("noticed after %v, want %v at most", took, pingGap+pingTimeout)
		}
		if s := statusOf(l.readErr); s == nil || s.Code() != codes.Unavailable {
			t.Errorf("ended with %v", l.readErr)
		}
		l.close()
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
}
