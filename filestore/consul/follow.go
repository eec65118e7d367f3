package consul

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// waitTime is how long Consul holds a question for changes. It bounds how long a restoration of
	// Consul's state can go unnoticed, of which Consul does not tell those who wait.
	waitTime = 30 * time.Second
	// leastWait and mostWait are between attempts while Consul is away.
	leastWait, mostWait = 250 * time.Millisecond, 5 * time.Second
)

// Follow keeps up with what other replicas write, writes snapshots, and keeps the copy, until ctx
// ends. Run it once.
func (s *Store) Follow(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.leaving.Store(true) })()
	copying, endCopy := context.WithCancel(context.WithoutCancel(ctx)) // it saves what is written before the end, too
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.copy.Run(copying) })
	g.Go(func() error { s.touchCopy(ctx); return nil })
	g.Go(func() error { return s.compactor(ctx) })
	g.Go(func() error {
		defer endCopy()
		s.following.Store(true)
		defer s.following.Store(false)
		for w := (watch{}); ctx.Err() == nil; {
			s.watch(ctx, &w)
		}
		return nil
	})
	return g.Wait()
}

// watch is where a wait for changes stands.
type watch struct {
	index uint64 // to wait for more than; 0: ask without waiting
	pause time.Duration
}

// watch waits for one change, and takes it in. After a failure it waits before it returns.
func (s *Store) watch(ctx context.Context, w *watch) {
	held, release := s.standing.hold(ctx)
	r, err := s.client.head(held, w.index, waitTime)
	interrupted := held.Err() != nil
	release()
	switch {
	case ctx.Err() != nil:
		return
	case interrupted || err != nil:
		if !interrupted {
			s.standing.broken(time.Now())
		}
		w.index = 0
		err = s.recheck(ctx)
	case w.index == 0 || r.index < w.index:
		w.index, err = r.index, s.recheck(ctx)
	case r.index == w.index:
		// Nothing changed; or Consul's state was restored, and it waits for an index that is not
		// reached again for long.
		// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
		w.index = 0
	default:
		w.index, err = r.index, s.heard(ctx, r)
	}
	if err == nil {
		w.pause = leastWait
		return
	}
	w.index, w.pause = 0, min(max(2*w.pause, leastWait), mostWait)
	_ = sleep(ctx, w.pause/2+time.Duration(rand.Int64N(int64(w.pause)))) // the end of ctx is seen by who calls
}

// recheck reads the head, and takes it in.
func (s *Store) recheck(ctx context.Context) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	return s.refresh(ctx)
}

// heard takes in a head that was read before this has the turn.
func (s *Store) heard(ctx context.Context, r headRead) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	if h, err := parseHead(r.raw); err != nil || h.Sequence <= s.state.Load().Sequence {
		return s.refresh(ctx)
	}
	err := s.catchUp(ctx, r)
	s.note(ctx, err)
	return err
}
