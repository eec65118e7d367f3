package consul

import (
	"sync"
	"time"
)

// slots are the connections that may be kept for waiting queries about single services. Safe for concurrent use.
type slots struct {
	mu sync.Mutex
	// the following are guarded by mu
	most        int // connections by the settings
	connections int // that there may be
	room        int // for waiting queries
	used        int
	shared      bool // many queries share a connection
	crowded     bool // there are more services than room
	refusal     time.Time
	patience    time.Duration // how long nothing may be refused before there may be more
	grown       bool          // since the last refusal

	turns turns // the connections for the queries about all services of a place
}

func newSlots(connections int) *slots {
	return &slots{most: connections, connections: connections, patience: growAfter}
}

// keeping is how many goroutines may ask at once without waiting for a change, and leastKeeping how many of one place, however many
// places there are.
const keeping, leastKeeping = 8, 2

// keepingOf is how many of each of so many places may. Each has its own, so that one whose answers take long delays no other.
func keepingOf(connections, places int) int {
	return max(leastKeeping, min(keeping, connections/4)/max(1, places))
}

// few is how many of each of so many places may, by how many connections there may be now.
func (s *slots) few(places int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return keepingOf(s.connections, places)
}

// besides is how many connections a place needs for the queries about all of its services: their names, checks that warn and
// that are critical, and restorations.
const besides = 4

// crowd takes in how many services and places there are, and whether queries share connections. It says whether it
// is another answer than before to whether all services may be watched by themselves, and whether the queries about places take
// turns from now on.
func (s *slots) crowd(services, places int, shared bool) (changed, turns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, keep, wanted := s.crowded, keepingOf(s.connections, places)*places, besides*places
	s.shared = shared
	s.room = max(0, s.connections-keep-wanted)
	s.crowded = !shared && services > s.room
	most := max(s.connections-keep, s.connections*3/4) // the rest is for who asks without waiting
	if shared {
		most = wanted
	}
	return was != s.crowded, s.turns.bound(most, wanted)
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
	case s.crowded && (s.used >= s.room || !changed): // else there is room for all; those that have gone give theirs back soon
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
	if s.grown {
		s.grown, s.patience = false, min(2*s.patience, lastGrowth)
	}
	s.connections = max(leastConnections, s.connections*3/4)
	return true
}

const (
	// growAfter is how long nothing may be refused before there may be more connections again; twice as long each time that
	// this turns out too many, at most lastGrowth.
	growAfter, lastGrowth = 5 * time.Minute, time.Hour
	// growLook is how often is looked whether it is time.
	growLook = time.Minute
)

// grow lets there be a quarter more connections, at most those of the settings, when nothing was refused for long enough. It
// says whether there are more.
func (s *slots) grow(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connections >= s.most || now.Sub(s.refusal) < s.patience {
		return false
	}
	s.connections = min(s.most, s.connections+max(1, s.connections/4))
	s.refusal, s.grown = now, true
	return true
}
