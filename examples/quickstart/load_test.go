package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// load is traffic that continues during an experiment.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu  sync.Mutex
	sum share // guarded by mu
	err error // guarded by mu: of asking the frontend
}

// startLoad makes requests one after the other until end is called.
func (m *mesh) startLoad(ctx context.Context) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{stop: cancel}
	l.done.Go(func() {
		for ctx.Err() == nil {
			s, err := m.measure(ctx, 10)
			if ctx.Err() != nil {
				return // the last ten were cut off
			}
			l.mu.Lock()
			l.sum.add(s)
			if err != nil && l.err == nil {
				l.err = err
			}
			l.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return l
}

// end stops the traffic. A request that failed is an error.
func (l *load) end() (share, error) {
	l.stop()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.sum, fmt.Errorf("the frontend does not answer: %w", l.err)
	case l.sum.failed() > 0:
		return l.sum, fmt.Errorf("requests failed: %v", l.sum)
	case l.sum.total() == 0:
		return l.sum, fmt.Errorf("no request was made")
	}
	return l.sum, nil
}

func (s *share) add(other share) {
	if s.Answers == nil {
		s.Answers, s.Failures = map[string]int{}, map[string]int{}
	}
	for k, n := range other.Answers {
		s.Answers[k] += n
	}
	for k, n := range other.Failures {
		s.Failures[k] += n
	}
}
