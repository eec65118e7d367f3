package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// firstPause is between the first unexpected end of Envoy and its next start; it doubles with
	// each one.
	firstPause = 100 * time.Millisecond
	// longestPause bounds it.
	longestPause = 30 * time.Second
	// steady is how long a run takes that ends a series of failures.
	steady = time.Minute
)

// supervisor runs Envoy as a child, and starts it again whenever it ends before it should.
type supervisor struct {
	run   func(context.Context) exit // one run of Envoy
	pid   func() int                 // of the child; zero: none runs
	ended chan struct{}              // capacity 1; receives when Envoy ended unexpectedly
	log   hclog.Logger

	mu      sync.Mutex
	runs    int    // guarded by mu: starts so far
	trouble string // guarded by mu: how the last run ended; empty: none ended
}

// Run returns when ctx has ended and Envoy with it, or when Envoy has ended after last was closed.
func (s *supervisor) Run(ctx context.Context, last <-chan struct{}) error {
	pause := firstPause
	for {
		s.mu.Lock()
		s.runs++
		s.mu.Unlock()
		e := s.run(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-last:
			return nil
		default:
		}
		if e.lived >= steady {
			pause = firstPause
		}
		s.log.Error("envoy ended unexpectedly and is started again", "how", e.String(),
			"lived", e.lived.Round(time.Millisecond), "next", pause)
		s.mu.Lock()
		s.trouble = e.String()
		s.mu.Unlock()
		poke(s.ended)
		select {
		case <-ctx.Done():
			return nil
		case <-last:
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// State implements envoyRunner.
func (s *supervisor) State() envoyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return envoyState{PID: s.pid(), Runs: s.runs, Trouble: s.trouble}
}

// Ended implements envoyRunner.
func (s *supervisor) Ended() <-chan struct{} { return s.ended }

// Resume implements envoyRunner: a child ends with the agent that started it.
func (*supervisor) Resume(context.Context) (bool, error) { return false, nil }

// Stays implements envoyRunner.
func (*supervisor) Stays(context.Context) bool { return false }

// Stop implements envoyRunner: a child ends when Run does.
func (*supervisor) Stop(context.Context) error { return nil }

// poke makes the reader of c look, now or when it is ready.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
