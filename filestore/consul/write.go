package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// maxGroup bounds how many writes share an entry, and maxGroupSize how large they may be
	// together, in bytes.
	maxGroup, maxGroupSize = 256, 128 << 10
	// raceTime is for how long a write is tried again because another replica was faster.
	raceTime = 30 * time.Second
	// doubtTime is how long Consul is asked what became of a write when its answer is lost.
	doubtTime = 15 * time.Second
	// leavingDoubt is how long while this replica ends.
	leavingDoubt = 2 * time.Second
	// retryPause is from one question about that to the next.
	retryPause = 200 * time.Millisecond
)

// writeGroup writes proposals as one entry, and sets what came of each.
func (s *Store) writeGroup(ctx context.Context, group []*proposal) {
	w := &writing{store: s, open: slices.Clone(group)}
	if len(group) == 1 {
		w.packed = group[0].packed
	}
	for end := time.Now().Add(raceTime); time.Now().Before(end); {
		if w.once(ctx); len(w.open) == 0 {
			return
		}
	}
	w.fail(fmt.Errorf("%w: other replicas were faster for %s; try again", ErrAway, raceTime))
}

// writing is a group that is being written.
type writing struct {
	store *Store
	open  []*proposal // those of which is not known what comes of them
	fresh bool        // the state is what Consul holds, or was when this began

	packed packed // what was packed last, for the next try
	again  bool   // chunks were given up once
}

// fail ends all that are open.
func (w *writing) fail(err error) {
	if errors.Is(err, ErrUnknown) {
		w.store.counts.unknown.Add(uint64(len(w.open)))
	}
	for _, p := range w.open {
		p.err = err
	}
	w.open = nil
	if !errors.Is(err, ErrUnknown) { // then an entry may refer to them
		w.dropChunks()
	}
}

// dropChunks deletes chunks that no entry refers to.
func (w *writing) dropChunks() {
	w.store.dropChunks(w.packed.content)
	w.packed = packed{}
}

// dropChunks deletes the chunks of a content that no entry refers to.
func (s *Store) dropChunks(c content) {
	if c.Chunks == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	if err := s.client.remove(ctx, chunkKeys(c)); err != nil {
		s.cfg.Log.Debug("chunks of a write that was not done stay until they are swept", "chunks", c.Chunks,
			"error", err)
	}
}

// once tries to write what is open. What it can end, it ends.
func (w *writing) once(ctx context.Context) {
	s := w.store
	if why := s.standing.why(); why != nil && s.startsWithout() {
		w.fail(fmt.Errorf("%w: %w", ErrAway, why))
		return
	}
	if s.standing.away() && !w.fresh { // what is sent now may be done much later, when nobody waits for it any more
		if err := w.probe(ctx); err != nil {
			w.fail(fmt.Errorf("%w: %w", ErrAway, err))
			return
		}
	}
	e := newAttempt(s)
	if err := w.plan(e); err != nil {
		w.fail(err)
		return
	}
	if len(e.made) == 0 && len(e.idle) == 0 && len(e.refused) == 0 {
		return
	}
	// What cannot be written, or need not, is by the state; that has to be the latest.
	if !w.fresh && len(e.idle)+len(e.refused) > 0 {
		w.fresh = true
		if err := s.refreshWithin(ctx, freshTime); err != nil {
			w.fail(fmt.Errorf("%w: %w", ErrAway, err))
		}
		return
	}
	w.end(e.sure, e)
	if len(e.made) == 0 {
		w.dropChunks()
		return
	}
	switch err := w.append(ctx, e); {
	case err == nil:
		w.finish(e)
		s.publish(e.next)
		w.ended(e)
	case errors.Is(err, errConflict):
		w.lost(ctx, e, errors.Is(err, errDoubt))
	default:
		w.fail(err)
	}
}

// probe looks whether Consul answers.
func (w *writing) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	if err := w.store.refresh(ctx); err != nil {
		return err
	}
	w.fresh = true
	return nil
}

// attempt is one try to write an entry.
type attempt struct {
	base, next *state
	made       []*proposal // those that the entry has
	commits    []json.RawMessage
	idle       []*proposal // those with nothing to write
	refused    map[*proposal]error
	// sure are those of idle and refused that come before all of made: what comes of them does not
	// hang on whether that is written.
	sure []*proposal
}

func newAttempt(s *Store) *attempt {
	base := s.state.Load()
	log := base.Log
	if log == "" {
		log = newID()
	}
	return &attempt{base: base, next: base.begin(log, newID()), refused: map[*proposal]error{}}
}

// plan has each proposal make its commit, for the state after those before it.
func (w *writing) plan(e *attempt) error {
	size := 0
	for _, p := range w.open {
		c, err := p.plan(e.next)
		switch {
		case err != nil:
			e.refused[p] = err
		case c == nil:
			p.after = e.next
			e.idle = append(e.idle, p)
		}
		if err != nil || c == nil {
			if len(e.made) == 0 {
				e.sure = append(e.sure, p)
			}
			continue
		}
		if p.planned != c {
			if p.encoded, err = c.encode(); err != nil {
				return err
			}
			p.planned = c
		}
		if size += len(p.encoded); size > maxGroupSize && len(e.made) > 0 {
			return nil // the rest waits for the next entry
		}
		e.made, e.commits = append(e.made, p), append(e.commits, p.encoded)
		if p.large {
			return nil // what it makes of the state takes long, and is found out when it is written
		}
		e.next = e.next.apply(c, w.store.applying)
		p.after = e.next
	}
	return nil
}

// end ends some of an attempt.
func (w *writing) end(list []*proposal, e *attempt) {
	for _, p := range list {
		p.err = e.refused[p]
	}
	w.open = slices.DeleteFunc(w.open, func(p *proposal) bool { return slices.Contains(list, p) })
}

// finish finds out what a large commit that was written made of the state.
func (w *writing) finish(e *attempt) {
	if p := e.made[0]; p.large {
		e.next = e.next.apply(p.planned, w.store.applying)
		p.after = e.next
	}
}

// ended ends those whose entry is part of the log, and those who were told by it that they have
// nothing to write.
func (w *writing) ended(e *attempt) {
	w.store.counts.written.Add(1)
	w.packed = packed{}
	w.end(slices.Concat(e.made, e.idle, slices.Collect(maps.Keys(e.refused))), e)
}

// lost is for an entry that Consul refused because it does not follow on what is there; or, in
// doubt, because it is there already.
func (w *writing) lost(ctx context.Context, e *attempt, doubt bool) {
	s := w.store
	w.fresh = true
	before, at := e.base.position, s.headAt
	patience := freshTime
	if doubt {
		patience = s.doubts()
	}
	if err := s.refreshWithin(ctx, patience); err != nil {
		w.fail(fmt.Errorf("%w: %w", map[bool]error{false: ErrAway, true: ErrUnknown}[doubt], err))
		return
	}
	if s.applied[e.next.Entry] {
		w.finish(e)
		w.ended(e)
		return
	}
	if doubt && s.state.Load().generation != e.base.generation {
		w.fail(fmt.Errorf("%w: what Consul holds was read anew, and does not tell: look whether it is there",
			ErrUnknown))
		return
	}
	switch known := s.state.Load(); {
	case known.position != before || s.headAt != at:
		s.counts.lost.Add(1)
	case w.packed.content.Chunks != "" && !w.again:
		w.packed, w.again = packed{}, true // they may have been swept
	default:
		err := s.damaged(keyOfTip(before.Entry), errTipless)
		s.tipAt = 0 // each look at Consul looks for it from now on, until it is there
		s.note(ctx, err)
		w.fail(fmt.Errorf("%w: %w", ErrAway, err))
	}
}

// refreshWithin is refresh, tried again for a while. What makes no sense is not asked for again.
func (s *Store) refreshWithin(ctx context.Context, patience time.Duration) error {
	for end := time.Now().Add(patience); ; {
		err := s.refresh(ctx)
		if err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, errFormat) || !time.Now().Before(end) ||
			sleep(ctx, retryPause) != nil {
			return err
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
