package admin

import (
	"net"
	"os"
	"sync"
)

const (
	// maxSeats bounds the connections of all users together but root and the one of this process, maxUserSeats those of one:
	// whoever may connect must not take the file descriptors that proxies need.
	maxSeats     = 256
	maxUserSeats = 32
)

// seats is a listener that bounds how many connections users hold. Those that are too many are closed at once. Safe for
// concurrent use.
type seats struct {
	net.Listener

	mu    sync.Mutex
	taken int            // guarded by mu
	users map[uint32]int // guarded by mu: how many each has
}

// seat is a connection of somebody who is known, or of whom is known why he is not.
type seat struct {
	net.Conn
	known known
	leave func() // once
}

func newSeats(l net.Listener) *seats { return &seats{Listener: l, users: map[uint32]int{}} }

// Accept implements net.Listener.
func (s *seats) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := credentials(c)
		if leave := s.take(p.UID, err == nil); leave != nil {
			return &seat{Conn: c, known: known{p, err}, leave: leave}, nil
		}
		_ = c.Close() // there is nobody to tell
	}
}

// take gives a user a seat, and returns what gives it back; nil: there is none left. Who is not known counts as one user.
func (s *seats) take(uid uint32, known bool) (leave func()) {
	if known && (uid == 0 || int(uid) == os.Geteuid()) {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= maxSeats || s.users[uid] >= maxUserSeats {
		return nil
	}
	s.taken++
	s.users[uid]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		if s.users[uid]--; s.users[uid] == 0 {
			delete(s.users, uid)
		}
	})
}

// Close implements net.Conn.
func (s *seat) Close() error {
	s.leave()
	return s.Conn.Close()
}
