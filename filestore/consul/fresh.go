package consul

import (
	"context"
	"sync"
	"time"
)

const (
	// freshTime is how long a read waits for Consul before it goes by what is known.
	freshTime = 2 * time.Second
	// startPause is from a look that failed to the next one before Follow runs: a start asks many
	// things, and would wait for each.
	startPause = 10 * time.Second
	// turnTime is how long it waits for its turn while Consul answers others.
	turnTime = time.Minute
)

// barrier has those who ask at the same time share one look at Consul. The zero value is ready.
type barrier struct {
	mu   sync.Mutex
	next *round // who comes now waits for it; nil: nobody does

	looks sync.WaitGroup // those under way
}

// round is one look.
type round struct {
	done chan struct{} // closed when it is over
}

// fresh brings the state to what Consul held when it was called, or later. While Consul is away it
// does nothing: who reads goes by what is known.
func (s *Store) fresh(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.following.Load() && s.standing.away() || s.startsWithout() {
		return nil
	}
	s.asking.mu.Lock()
	r := s.asking.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		s.asking.next = r
		s.asking.looks.Go(func() { s.look(context.WithoutCancel(ctx), r) })
	}
	s.asking.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startsWithout says that this replica starts while Consul is away: what stands in counts, and
// whether Consul is back is not looked at for each thing that the start asks.
func (s *Store) startsWithout() bool {
	return !s.following.Load() && s.standing.lately(startPause)
}

// look is one look at Consul, for all who wait for it. Others may come until it has the turn.
func (s *Store) look(ctx context.Context, r *round) {
	defer close(r.done)
	err := s.awaitLong(ctx)
	s.asking.mu.Lock()
	s.asking.next = nil
	s.asking.mu.Unlock()
	if err != nil {
		return // Consul is away, which somebody else finds out: what is known is what there is
	}
	defer func() { <-s.turn }()
	quiet, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	if err := s.refresh(quiet); err != nil {
		s.cfg.Log.Debug("a read goes by what is known", "error", err)
	}
}

// awaitLong takes the turn, unless Consul turns out to be away meanwhile.
func (s *Store) awaitLong(ctx context.Context) error {
	for end := time.Now().Add(turnTime); ; {
		short, cancel := context.WithTimeout(ctx, freshTime)
		err := s.await(short)
		cancel()
		if err == nil || s.standing.away() || !time.Now().Before(end) {
			return err
		}
	}
}
