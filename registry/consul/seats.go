package consul

import (
	"context"
	"slices"
	"sync"
)

// seats bound how many do something at once; who comes first is first. There are none before there is a bound. Safe for concurrent use.
type seats struct {
	mu sync.Mutex
	// the following are guarded by mu
	most  int
	used  int
	queue []chan struct{} // who waits for one; closed when it is theirs
}

// bound has there be so many. Who has one keeps it.
func (s *seats) bound(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.next()
}

// next has those go on for whom there are seats. Called with mu held.
func (s *seats) next() {
	for len(s.queue) > 0 && s.used < s.most {
		s.used++
		close(s.queue[0])
		s.queue = s.queue[1:]
	}
}

// take waits for one, until ctx ends.
func (s *seats) take(ctx context.Context) error {
	mine := make(chan struct{})
	s.mu.Lock()
	s.queue = append(s.queue, mine)
	s.next()
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		s.leave(mine)
		return ctx.Err()
	}
}

// leave has who does not wait any more be out of the queue, or give back what was its own by then.
func (s *seats) leave(mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, mine); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}
	s.used--
	s.next()
}

// give gives one back.
func (s *seats) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.next()
}
