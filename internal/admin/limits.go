package admin

import (
	"context"
	"fmt"
	"net"
	"time"
)

const (
	// maxConnections limits the connections of all users: they must not take the file descriptors
	// that proxies need. One more waits until another is closed.
	maxConnections = 256
	// maxRequests limits the requests that are processed at once: a script must not take the
	// machine from the proxies.
	maxRequests = 16
	// maxStreams limits how many follow the audit log or watch services.
	maxStreams = 16
)

// semaphore limits how many do something at once: its capacity.
type semaphore chan struct{}

// tryAcquire takes a place, which release gives back. Errors: ErrBusy, with text.
func (s semaphore) tryAcquire(text string) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
		return nil, NewError(ErrBusy, fmt.Sprintf("%d %s: try again", cap(s), text))
	}
}

// acquire waits for a place, at most answerTime. Errors: ErrBusy, ctx's.
func (s semaphore) acquire(ctx context.Context) (release func(), err error) {
	timeout := time.NewTimer(answerTime)
	defer timeout.Stop()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout.C:
		return nil, NewError(ErrBusy, fmt.Sprintf("others used the store for %s: try again", answerTime))
	}
}

// stream limits what follows or watches; other streams end soon and count as requests.
func (s *Server) stream(follow bool) (release func(), err error) {
	if follow {
		return s.streams.tryAcquire("streams follow the audit log or services already")
	}
	return s.busy.tryAcquire("requests are being processed")
}

// peerListener is a listener whose connections have the peer as their remote address.
type peerListener struct{ net.Listener }

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p, err := credentials(c)
	return peerConn{c, &peerAddr{c.RemoteAddr(), p, err}}, nil
}

// peerConn is a connection of a peer.
type peerConn struct {
	net.Conn
	remote *peerAddr
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return c.remote }

// peerAddr is the address of a peer, or why the peer is not known.
type peerAddr struct {
	net.Addr
	peer Peer
	err  error
}
