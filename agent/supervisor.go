package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// firstPause is between the first unexpected end of Envoy and its next start; it doubles with each one.
	firstPause = 100 * time.Millisecond
	// longestPause bounds it.
	longestPause = 30 * time.Second
	// steady is how long a run takes that ends a series of failures.
	steady = time.Minute
	// loopAfter is how many short runs in a row are called a crash loop.
	loopAfter = 5
)

// supervisor runs Envoy as a child, and starts it again whenever it ends before it should.
type supervisor struct {
	run   func(context.Context) exit // one run of Envoy
	pid   func() int                 // of the child; zero: none runs
	ended chan struct{}              // capacity 1; receives when Envoy ended unexpectedly
	log   hclog.Logger

	mu     sync.Mutex
	runs   int  // guarded by mu: starts so far
	series int  // guarded by mu: short runs in a row
	last   exit // guarded by mu: how the latest ended
}

// Run returns when ctx has ended and Envoy with it, or when Envoy has ended after last was closed.
func (s *supervisor) Run(ctx context.Context, last <-chan struct{}) error {
	pause := firstPause
	for {
		s.count()
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
		s.note(e, pause)
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

// note records and logs an end that nobody asked for.
func (s *supervisor) note(e exit, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.lived >= steady {
		s.series = 0
	}
	s.series++
	s.last = e
	if s.series >= loopAfter {
		s.log.Error("envoy ends again and again: it cannot work with its configuration or on this machine; it is tried further",
			"times", s.series, "how", e.String(), "lived", e.lived.Round(time.Millisecond), "next", pause)
		return
	}
	s.log.Error("envoy ended unexpectedly and is started again", "how", e.String(), "lived", e.lived.Round(time.Millisecond), "next", pause)
}

func (s *supervisor) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
}

// State implements envoyRunner.
func (s *supervisor) State() envoyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := envoyState{PID: s.pid(), Runs: s.runs}
	if s.series > 0 {
		out.Trouble = s.last.String()
	}
	return out
}

// Ended implements envoyRunner.
func (s *supervisor) Ended() <-chan struct{} { return s.ended }

// Adopt implements envoyRunner: a child ends with the agent that started it.
func (*supervisor) Adopt(context.Context) (bool, error) { return false, nil }

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
