package mcp

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a connection that loses everything that is written after a time.
type stuck struct {
	net.Conn
	from time.Time
}

func (s *stuck) Write(b []byte) (int, error) {
	if time.Now().Before(s.from) {
		return s.Conn.Write(b)
	}
	return len(b), nil
}

// A server that hangs while its machine acknowledges packets is found in bounded time.
func TestServerStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{AnswerWait: 1000 * time.Hour}, func(s *server) {
			s.pipe = func(c net.Conn) net.Conn { return &stuck{c, time.Now().Add(time.Minute)} }
		})
		begin := time.Now()
		if b := s.next(); b.Down == nil || time.Since(begin) > 8*time.Minute {
			t.Errorf("it is found after %s: %v", time.Since(begin), b.Down)
		}
	})
}
