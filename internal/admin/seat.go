package admin

import (
	"net"
	"os"
)

const (
	// maxSeats bounds the connections of all users together but root and the one of this process,
	// maxUserSeats those of one: whoever may connect must not take the file descriptors that
	// proxies need.
	maxSeats     = 256
	maxUserSeats = 32
)

// seats is a listener that bounds how many connections users hold. Those that are too many are
// closed at once. Safe for concurrent use.
type seats struct {
	net.Listener
	tally tally // but of root, and of the user of this process
}

// seat is a connection of somebody who is known, or of whom is known why he is not.
type seat struct {
	net.Conn
	known known
	leave func() // once
}

func newSeats(l net.Listener) *seats { return &seats{Listener: l} }

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

// take gives a user a seat, and returns what gives it back; nil: there is none left. Who is not
// known counts as one user.
func (s *seats) take(uid uint32, known bool) (leave func()) {
	if known && (uid == 0 || int(uid) == os.Geteuid()) {
		return func() {}
	}
	return s.tally.take(uid, maxSeats, maxUserSeats)
}

// Close implements net.Conn.
func (s *seat) Close() error {
	s.leave()
	return s.Conn.Close()
}
