package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// refresh reads the head and what is new since the state. Its caller has the turn. It notes how Consul stands.
func (s *Store) refresh(ctx context.Context) error {
	h, err := s.client.head(ctx, 0, 0)
	if err != nil {
		err = s.client.explain(err)
	} else {
		err = s.catchUp(ctx, h)
	}
	s.note(ctx, err)
	return err
}

// note notes what came of an attempt to read. That ctx ended says nothing of Consul.
func (s *Store) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.standing.well(s.cfg.Log)
	case !errors.Is(ctx.Err(), context.Canceled):
		s.standing.ill(err, s.cfg.Log)
	}
}

// catchTries is how often what is missing is looked for below another head: snapshots take the place of entries seldom.
const catchTries = 10

// catchUp brings the state to a head. Its caller has the turn, and read the head after it took it, unless the head is newer than the
// state.
func (s *Store) catchUp(ctx context.Context, r headRead) error {
	for try := 1; ; try++ {
		err := s.bring(ctx, r)
		if !errors.Is(err, errMissed) && !errors.Is(err, errUnchained) {
			return err
		}
		// What is missing may have become part of a snapshot just now.
		again, askErr := s.client.head(ctx, 0, 0)
		if askErr != nil {
			return s.client.explain(askErr)
		}
		if bytes.Equal(again.raw, r.raw) || try == catchTries {
			return fmt.Errorf("%w: %w: bring back a snapshot of Consul's", ErrDamaged, err)
		}
		r = again
	}
}

// bring brings the state to a head. Errors: errMissed, errUnchained, and what makes no sense.
func (s *Store) bring(ctx context.Context, r headRead) error {
	known := s.state.Load()
	if r.raw == nil {
		return s.headless(known)
	}
	h, err := parseHead(r.raw)
	if err != nil {
		return s.damaged(keyHead, err)
	}
	if known.Log != "" && h.Log != known.Log {
		if err := s.replaced(known, h); err != nil {
			return err
		}
		return s.startOver(ctx, known, h, r.modified)
	}
	switch {
	case known.partial, known.Sequence < sequenceOf(h.Former):
		return s.startOver(ctx, known, h, r.modified)
	case h.position == known.position:
		s.knowHead(h, r.modified)
		return nil
	case h.Sequence > known.Sequence:
		err := s.follow(ctx, known, h, r.modified)
		switch {
		case errors.Is(err, errMissed) && sequenceOf(h.Snapshot) > known.Sequence:
			return s.startOver(ctx, known, h, r.modified)
		case !errors.Is(err, errUnchained):
			return err
		}
	}
	s.restored(known, h)
	return s.startOver(ctx, known, h, r.modified)
}

// replaced is for a Consul that holds another log than the known one: somebody began a new one where the old one was lost. Who runs
// does not believe it, as all would be gone at once, and who starts does: the start is the operator's word.
func (s *Store) replaced(known *state, h head) error {
	if s.begun {
		return fmt.Errorf("%w: Consul holds another store below %s, begun on %s, than the one that this replica knows: was its state lost? Bring back a snapshot of Consul, or start ashored again to go by what is there now",
			ErrDamaged, s.cfg.Options.Prefix, h.Begun.UTC().Format(time.RFC3339))
	}
	s.cfg.Log.Error("Consul holds another store than the one that this replica knew before its start: it goes by that one", "store", s.Name(), "begun", h.Begun, "known", known.Log, "found", h.Log)
	return nil
}

// headless is for a Consul without a head: nothing was written yet, or it was lost.
func (s *Store) headless(known *state) error {
	if known.Log != "" {
		return fmt.Errorf("%w: the key %s is gone from Consul: bring back a snapshot of Consul's; or, to begin with an empty store, name another setting store.prefix", ErrDamaged, s.client.key(keyHead))
	}
	if known.partial {
		s.publish(&state{})
	}
	s.head, s.headAt = head{}, 0
	return nil
}

// restored tells that Consul's state was replaced by an older one.
func (s *Store) restored(known *state, h head) {
	s.cfg.Log.Error("Consul's state is not the one that this replica knew, as after a restoration from a snapshot: it goes by what Consul holds now, and writes since then are lost",
		"store", s.Name(), "known", known.Sequence, "found", h.Sequence, "known_entry", known.Entry, "found_entry", h.Entry)
}

var (
	// errMissed says that entries were deleted before they were read, as they are part of a snapshot.
	errMissed = errors.New("an entry is missing")
	// errUnchained says that an entry does not follow on the one before.
	errUnchained = errors.New("an entry does not follow on the one before")
)

// readAhead is how many entries are read at once.
const readAhead = 16

// follow applies the entries from the state to a head. Errors: errMissed, errUnchained, and what makes no sense.
func (s *Store) follow(ctx context.Context, from *state, h head, modified uint64) error {
	next := from
	size, chunked := s.inLog, map[uint64]string{}
	var ids []string
	for next.Sequence < h.Sequence {
		n := min(readAhead, h.Sequence-next.Sequence)
		names := make([]string, n)
		for i := range names {
			names[i] = keyOfEntry(next.Sequence + uint64(i) + 1)
		}
		values, err := s.client.readMany(ctx, names)
		if err != nil {
			return s.client.explain(err)
		}
		for _, name := range names {
			a, after, err := s.applyEntry(ctx, next, name, values[name])
			if err != nil {
				return err
			}
			next = after
			size.entries++
			size.bytes += len(values[name])
			if a.Chunks != "" {
				chunked[a.Sequence] = a.Chunks
				size.bytes += a.Count * chunkSize
			}
			ids = append(ids, a.Entry)
		}
	}
	if next.position != h.position {
		return fmt.Errorf("%w: entry %d is %s, and the head names %s", errUnchained, next.Sequence, next.Entry, h.Entry)
	}
	s.inLog = size
	for sequence, name := range chunked {
		s.chunked[sequence] = name
	}
	if s.applied != nil {
		for _, id := range ids {
			s.applied[id] = true
		}
	}
	s.knowHead(h, modified)
	s.publish(next)
	return nil
}

// applyEntry is the state after the entry that stands at a key.
func (s *Store) applyEntry(ctx context.Context, before *state, name string, raw []byte) (about, *state, error) {
	if raw == nil {
		return about{}, nil, fmt.Errorf("%w: %s", errMissed, s.client.key(name))
	}
	a, body, err := parseEntry(raw)
	if err != nil {
		return a, nil, s.damaged(name, err)
	}
	if a.Log != before.Log && before.Log != "" || a.Sequence != before.Sequence+1 || a.Previous != before.Entry {
		return a, nil, fmt.Errorf("%w: %s", errUnchained, s.client.key(name))
	}
	if a.Chunks != "" {
		if body, err = s.chunks(ctx, a.content); err != nil {
			return a, nil, err
		}
	}
	if body, err = a.unpack(body); err != nil {
		return a, nil, s.damaged(name, err)
	}
	commits, err := decodeCommits(body)
	if err != nil {
		return a, nil, s.damaged(name, err)
	}
	next := before.begin(a.Log, a.Entry)
	for _, c := range commits {
		next = next.apply(c, s.applying)
	}
	return a, next, nil
}

// chunks reads a content that stands in chunks.
func (s *Store) chunks(ctx context.Context, c content) ([]byte, error) {
	var out []byte
	for i := range c.Count {
		name := keyOfChunk(c.Chunks, i)
		values, err := s.client.read(ctx, []string{name})
		if err != nil {
			return nil, s.client.explain(err)
		}
		if values[name] == nil {
			return nil, fmt.Errorf("%w: %s", errMissed, s.client.key(name))
		}
		out = append(out, values[name]...)
	}
	return out, nil
}

// startOver makes the state of what Consul holds alone.
func (s *Store) startOver(ctx context.Context, known *state, h head, modified uint64) error {
	next := &state{}
	s.inLog, s.chunked = loggedSize{}, map[uint64]string{}
	if r := h.Snapshot; r != nil {
		s.inLog.snapshot = r.Count * chunkSize
		raw, err := s.chunks(ctx, r.content)
		if err == nil {
			raw, err = r.unpack(raw)
		}
		if err == nil {
			next, err = decodeState(raw, s.applying)
		}
		if err != nil && !errors.Is(err, errMissed) {
			return s.damaged(keyOfChunk(r.Chunks, 0), err)
		}
		if err != nil {
			return err
		}
		if next.position != (position{h.Log, r.Sequence, r.Entry}) {
			return s.damaged(keyOfChunk(r.Chunks, 0), fmt.Errorf("the snapshot is of entry %d, %s", next.Sequence, next.Entry))
		}
	}
	next.generation = known.generation + 1
	if next.Sequence == h.Sequence {
		s.knowHead(h, modified)
		s.publish(next)
		return nil
	}
	return s.follow(ctx, next, h, modified)
}

// knowHead notes the head that the state is of.
func (s *Store) knowHead(h head, modified uint64) {
	if h.Snapshot != nil && sequenceOf(s.head.Snapshot) != h.Snapshot.Sequence {
		for sequence := range s.chunked {
			if sequence <= sequenceOf(h.Former) {
				delete(s.chunked, sequence)
			}
		}
		s.inLog.entries = int(h.Sequence - h.Snapshot.Sequence)
		s.inLog.snapshot = h.Snapshot.Count * chunkSize
		s.inLog.bytes = 0
	}
	s.head, s.headAt = h, modified
}

// damaged is the error for what stands at a key and cannot be used.
func (s *Store) damaged(name string, err error) error {
	if errors.Is(err, errNewer) {
		return fmt.Errorf("the key %s of Consul cannot be used: %w", s.client.key(name), err)
	}
	return fmt.Errorf("%w: the key %s of Consul cannot be used (%w): did somebody else write there? What was known stays; bring back a snapshot of Consul's", ErrDamaged, s.client.key(name), err)
}

// barrier has those who ask at the same time share one look at Consul. The zero value is ready.
type barrier struct {
	mu   sync.Mutex
	next *round // who comes now waits for it; nil: nobody does
}

// round is one look.
type round struct {
	done chan struct{} // closed when it is over
}

const (
	// freshTime is how long a read waits for Consul before it goes by what is known.
	freshTime = 2 * time.Second
	// turnTime is how long it waits for its turn while Consul answers others.
	turnTime = time.Minute
)

// fresh brings the state to what Consul held when it was called, or later. While Consul is away it does nothing: who reads goes by
// what is known.
func (s *Store) fresh(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.following.Load() && s.standing.away() {
		return nil
	}
	s.asking.mu.Lock()
	r := s.asking.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		s.asking.next = r
		s.asking.mu.Unlock()
		return s.look(ctx, r)
	}
	s.asking.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look is one look at Consul, for all who wait for it. Others may come until it has the turn. It goes on when ctx ends, for their sake.
func (s *Store) look(ctx context.Context, r *round) error {
	defer close(r.done)
	err := s.awaitLong(context.WithoutCancel(ctx))
	s.asking.mu.Lock()
	s.asking.next = nil
	s.asking.mu.Unlock()
	if err != nil {
		return ctx.Err() // Consul is away, which somebody else finds out: what is known is what there is
	}
	defer func() { <-s.turn }()
	quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), freshTime)
	defer cancel()
	if err := s.refresh(quiet); err != nil {
		s.cfg.Log.Debug("a read goes by what is known", "error", err)
	}
	return ctx.Err()
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
