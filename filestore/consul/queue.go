package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
)

// proposal is a write that waits for its turn.
type proposal struct {
	// plan makes the commit for a state, in which its entry is begun: nil when there is nothing to
	// write; or it says why it cannot be made. It is called again when another replica was faster.
	plan func(*state) (*commit, error)
	// large says that it is written by itself.
	large bool

	done chan struct{} // closed when the following are set
	// after is the state right after it, or in which there was nothing to write.
	after *state
	err   error

	planned *commit         // the commit that encoded is of
	encoded json.RawMessage // made once for one commit
	packed  packed          // of a large one: what of it was written before its turn
}

// writeQueue are proposals that wait, the oldest first.
type writeQueue struct {
	mu   sync.Mutex
	list []*proposal // guarded by mu
}

// take takes the first ones that may share an entry.
func (q *writeQueue) take() []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < min(len(q.list), maxGroup) && (n == 0 || !q.list[n].large && !q.list[0].large) {
		n++
	}
	out := slices.Clone(q.list[:n])
	q.list = slices.Delete(q.list, 0, n)
	return out
}

// withdraw takes p back, unless it is being written.
func (q *writeQueue) withdraw(p *proposal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.list, p)
	if i < 0 {
		return false
	}
	q.list = slices.Delete(q.list, i, i+1)
	return true
}

// propose writes what plan makes of the state, together with what others propose at the same time,
// and returns the state right after it. When ctx ends before its turn, nothing is written and the
// error is that of ctx. c is the commit that plan makes in all likelihood; nil: none is known. What
// is too large for one key is written before its turn, in which all others would wait for it.
// Errors: those of plan, by what Consul holds; ErrAway, ErrUnknown.
func (s *Store) propose(ctx context.Context, large bool, c *commit, plan func(*state) (*commit, error)) (*state,
	error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &proposal{plan: plan, large: large, done: make(chan struct{})}
	if c != nil {
		if err := s.ahead(ctx, p, c); err != nil {
			return nil, err
		}
	}
	return s.enqueue(ctx, p)
}

// ahead writes the chunks of a commit, if it needs any, unless Consul is known to be away.
func (s *Store) ahead(ctx context.Context, p *proposal, c *commit) (err error) {
	if p.encoded, err = c.encode(); err != nil {
		return err
	}
	p.planned = c
	if len(p.encoded) <= maxInline || s.standing.away() {
		return nil
	}
	p.large = true
	p.packed, err = s.pack(ctx, encodeCommits([]json.RawMessage{p.encoded}))
	return cmp.Or(ctx.Err(), err)
}

// enqueue has a proposal written, by whoever has the turn.
func (s *Store) enqueue(ctx context.Context, p *proposal) (*state, error) {
	s.queue.mu.Lock()
	s.queue.list = append(s.queue.list, p)
	s.queue.mu.Unlock()
	for {
		select {
		case <-p.done: // another one wrote for this one
			return p.after, p.err
		case s.turn <- struct{}{}:
			s.writeWaiting()
			<-s.turn
		case <-ctx.Done():
			if s.queue.withdraw(p) {
				s.dropChunks(p.packed.content)
				return nil, ctx.Err()
			}
			<-p.done
			return p.after, p.err
		}
	}
}

// writeWaiting writes what waits. Its caller has the turn. It does not end with the context of its
// caller, for the others' sake.
func (s *Store) writeWaiting() {
	group := s.queue.take()
	if len(group) == 0 {
		return // another one's turn did it
	}
	s.applied = map[string]bool{}
	s.writeGroup(context.Background(), group)
	s.applied = nil
	for _, p := range group {
		close(p.done)
	}
}
