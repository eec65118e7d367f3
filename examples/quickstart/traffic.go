package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// share is how many requests each version of the backend answered. It is what the frontend tells.
type share struct {
	Answers  map[string]int `json:"answers"`
	Failures map[string]int `json:"failures"`
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

// failed is how many requests failed.
func (s share) failed() int {
	n := 0
	for _, f := range s.Failures {
		n += f
	}
	return n
}

// total is how many requests were made.
func (s share) total() int {
	n := s.failed()
	for _, a := range s.Answers {
		n += a
	}
	return n
}

func (s share) String() string {
	text := fmt.Sprintf("%d requests: v1 answered %d, v2 answered %d, %d failed", s.total(), s.Answers["v1"], s.Answers["v2"], s.failed())
	if len(s.Failures) > 0 {
		text += fmt.Sprintf(" %v", s.Failures)
	}
	return text
}

// askURL makes the frontend call the backend once, and answer with what the backend was sent.
func (m *mesh) askURL() string {
	return fmt.Sprintf("http://%s/call?url=http://backend.internal:8000/", m.at(workloads()[0], portIngress))
}

// callURL makes the frontend call the backend, through both Envoys, so many times.
func (m *mesh) callURL(times int) string {
	return fmt.Sprintf("http://%s/call?times=%d&url=http://backend.internal:8000/", m.at(workloads()[0], portIngress), times)
}

// measure makes requests and returns who answered them.
func (m *mesh) measure(ctx context.Context, times int) (share, error) {
	var s share
	body, err := m.get(ctx, m.callURL(times))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return s, fmt.Errorf("the frontend's answer %q: %w", body, err)
	}
	return s, nil
}

// load is traffic that goes on beside an experiment.
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
