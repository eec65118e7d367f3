package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// compactPause is from an attempt that failed to the next one.
	compactPause = 10 * time.Second
	// compactTries is how often the head is tried to be set to a snapshot while others write.
	compactTries = 20
	// orphanAge is how old chunks are that nobody refers to, before they are swept: who writes them refers to them long before.
	orphanAge = time.Hour
)

// wakeCompactor has a snapshot written when there is enough in the log. Its caller has the turn.
func (s *Store) wakeCompactor() {
	if s.inLog.entries < s.cfg.CompactEntries && s.inLog.bytes < max(s.cfg.CompactBytes, 2*s.inLog.snapshot) {
		return
	}
	select {
	case s.compact <- struct{}{}:
	default:
	}
}

// compactor writes snapshots when it is woken, until ctx ends.
func (s *Store) compactor(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.compact:
		}
		start := time.Now()
		swept, err := s.snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.cfg.Log.Warn("no snapshot was written into Consul; it is tried again", "store", s.Name(), "error", err)
			_ = sleep(ctx, compactPause) // the end of ctx is seen next
		default:
			select { // what was written meanwhile is few
			case <-s.compact:
			default:
			}
			s.cfg.Log.Debug("snapshot written into Consul", "store", s.Name(), "took", time.Since(start), "keys_deleted", swept)
		}
	}
}

// snapshot writes the state down and then deletes what is older than the snapshot before; it says how many keys.
func (s *Store) snapshot(ctx context.Context) (int, error) {
	known := s.state.Load()
	if known.partial || known.Sequence == 0 {
		return 0, nil
	}
	body, err := known.encode()
	if err != nil {
		return 0, err
	}
	c, raw, err := pack(body)
	if err != nil {
		return 0, err
	}
	if c, err = s.putChunks(ctx, c, raw); err != nil {
		return 0, s.client.explain(err)
	}
	ref := &snapshotRef{Sequence: known.Sequence, Entry: known.Entry, content: c}
	dropped, moved, err := s.point(ctx, known, ref)
	switch {
	case err != nil:
		return 0, err // the head may refer to it all the same; else it is swept
	case !moved:
		return 0, s.client.remove(ctx, chunkKeys(c))
	}
	return s.sweep(ctx, dropped)
}

// point has the head refer to a snapshot of a state, and tells the chunks that nobody needs then. False: another replica's is as new,
// or the state is not part of what Consul holds any more.
func (s *Store) point(ctx context.Context, of *state, ref *snapshotRef) (dropped map[string]bool, moved bool, err error) {
	if err := s.await(ctx); err != nil {
		return nil, false, err
	}
	defer func() { <-s.turn }()
	for range compactTries {
		known := s.state.Load()
		if s.head.Snapshot != nil && s.head.Snapshot.Chunks == ref.Chunks {
			return nil, true, nil // an answer was lost
		}
		if known.generation != of.generation || sequenceOf(s.head.Snapshot) >= of.Sequence {
			return nil, false, nil
		}
		h := s.head
		h.Former, h.Snapshot = h.Snapshot, ref
		modified, err := s.move(ctx, known, h, ref.content)
		if err == nil {
			dropped := s.droppedBy(h)
			s.knowHead(h, modified)
			return dropped, true, nil
		}
		if !errors.Is(err, errConflict) {
			return nil, false, err
		}
		if err := s.refresh(ctx); err != nil {
			return nil, false, err
		}
	}
	return nil, false, fmt.Errorf("other replicas were faster %d times", compactTries)
}

// droppedBy are the chunks that nobody needs once a head takes the place of the known one. Its caller has the turn.
func (s *Store) droppedBy(h head) map[string]bool {
	out := map[string]bool{}
	if s.head.Former != nil {
		out[s.head.Former.Chunks] = true
	}
	for sequence, name := range s.chunked {
		if sequence <= sequenceOf(h.Former) {
			out[name] = true
		}
	}
	return out
}

// sweep deletes what nobody needs: entries of the time before the former snapshot, chunks that were dropped, and those that nothing
// refers to for long.
func (s *Store) sweep(ctx context.Context, dropped map[string]bool) (int, error) {
	keep, former, err := s.needed(ctx)
	if err != nil {
		return 0, err
	}
	entries, err := s.client.keys(ctx, "entry/")
	if err != nil {
		return 0, s.client.explain(err)
	}
	chunks, err := s.client.keys(ctx, "chunk/")
	if err != nil {
		return 0, s.client.explain(err)
	}
	var old []string
	for _, k := range entries {
		if k <= keyOfEntry(former) {
			old = append(old, k)
		}
	}
	marked := map[string]bool{}
	for _, k := range chunks {
		name, _, _ := strings.Cut(strings.TrimPrefix(k, "chunk/"), "/")
		at, valid := chunksAt(name)
		if !dropped[name] && (!valid || keep[name] || time.Since(at) < orphanAge) {
			continue
		}
		if !marked[name] { // before its parts
			marked[name] = true
			old = append(old, keyOfMark(name))
		}
		old = append(old, k)
	}
	if err := s.client.remove(ctx, old); err != nil {
		return 0, s.client.explain(err)
	}
	return len(old), nil
}

// needed are the chunks that something refers to, and of which entry the former snapshot is.
func (s *Store) needed(ctx context.Context) (keep map[string]bool, former uint64, err error) {
	if err := s.await(ctx); err != nil {
		return nil, 0, err
	}
	defer func() { <-s.turn }()
	keep = map[string]bool{}
	for _, name := range s.chunked {
		keep[name] = true
	}
	for _, r := range []*snapshotRef{s.head.Snapshot, s.head.Former} {
		if r != nil {
			keep[r.Chunks] = true
		}
	}
	return keep, sequenceOf(s.head.Former), nil
}
