package consul

import (
	"sync"
	"time"
)

// slots are the connections that may be kept for waiting queries about single services. Safe for concurrent use.
type slots struct {
	mu sync.Mutex
	// the following are guarded by mu
	connections int // that there may be
	room        int // for waiting queries
	used        int
	shared      bool // many queries share a connection
	crowded     bool // there are more services than room
	refusal     time.Time
}

func newSlots(connections int) *slots { return &slots{connections: connections} }

// besides is how many connections a place needs for the queries about all of its services: their names, checks that warn and
// that are critical, and restorations.
const besides = 4

// crowd takes in how many services and places there are, and whether queries share connections. It says whether it
// is another answer than before to whether all services may be watched by themselves.
func (s *slots) crowd(services, places int, shared bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.crowded
	s.shared = shared
	s.room = max(0, s.connections-min(keeping, s.connections/4)-besides*places)
	s.crowded = !shared && services > s.room
	return was != s.crowded
}

// isCrowded says that some services are not watched by themselves.
func (s *slots) isCrowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crowded
}

// take takes one for a service, and says for how long its query may wait. In a crowd one is for services that have just
// changed: they will again.
func (s *slots) take(changed bool) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.shared:
		s.used++
		return longWait, true
	case s.used >= s.room || s.crowded && !changed:
		return 0, false
	}
	s.used++
	if s.crowded {
		return shortWait, true
	}
	return longWait, true
}

// give gives one back.
func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
}

// refusalGap is how long a refusal stands for all that come at once.
const refusalGap = time.Second

// refused takes in that Consul took no more connections: there may be fewer from now on. It says whether that is new.
func (s *slots) refused(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared || now.Sub(s.refusal) < refusalGap {
		return false
	}
	s.refusal = now
	s.connections = max(leastConnections, s.connections*3/4)
	return true
}
