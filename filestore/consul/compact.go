package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// compactPause is from an attempt that failed to the next one.
	compactPause = 10 * time.Second
	// compactTries is how often the head is tried to be set to a snapshot while others write.
	compactTries = 20
	// orphanAge is how old chunks are that nobody refers to, before they are swept: who writes them
	// refers to them long before. It is a matter of clocks, and a sweep takes away nothing that is
	// needed when they are wrong.
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
			s.cfg.Log.Warn("the log in Consul was not made shorter; it is tried again", "store", s.Name(), "error", err)
			_ = sleep(ctx, compactPause) // the end of ctx is seen next
		default:
			select { // what was written meanwhile is few
			case <-s.compact:
			default:
			}
			s.cfg.Log.Debug("snapshot written into Consul", "store", s.Name(), "took", time.Since(start),
				"keys_deleted", swept)
		}
	}
}

// snapshot writes the state down and then deletes what is older than the snapshot before; it says
// how many keys.
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
	return s.sweep(ctx, known.generation, dropped, orphanAge)
}

// point has the head refer to a snapshot of a state, and tells the chunks that nobody needs then.
// False: another replica's is as new, or the state is not part of what Consul holds any more.
func (s *Store) point(ctx context.Context, of *state, ref *snapshotRef) (dropped map[string]bool, moved bool,
	err error) {
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

// droppedBy are the chunks that nobody needs once a head takes the place of the known one. Its
// caller has the turn.
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

// sweep deletes what nobody needs, unless Consul's state was restored since a generation: entries
// of the time before the former snapshot, chunks that were dropped, and those that nothing has
// referred to for an age. What is needed is found out after the keys were listed, and again when
// somebody has written meanwhile: who sweeps may have been stopped in the middle, for long.
func (s *Store) sweep(ctx context.Context, generation int, dropped map[string]bool, age time.Duration) (int, error) {
	entries, err := s.client.keys(ctx, "entry/")
	if err != nil {
		return 0, s.client.explain(err)
	}
	parts, err := s.client.keys(ctx, "chunk/")
	if err != nil {
		return 0, s.client.explain(err)
	}
	chunks := map[string][]string{}
	for _, k := range parts {
		name, _, _ := strings.Cut(strings.TrimPrefix(k, "chunk/"), "/")
		if at, valid := chunksAt(name); dropped[name] || valid && time.Since(at) >= age {
			chunks[name] = append(chunks[name], k)
		}
	}
	n, err := s.unmark(ctx, generation, chunks)
	if err != nil || n == nil {
		return 0, err
	}
	var old []string
	for _, k := range entries {
		if k <= keyOfEntry(n.former) {
			old = append(old, k)
		}
	}
	for name, keys := range chunks {
		if !n.keep[name] {
			old = append(old, keys...)
		}
	}
	// The mark of the snapshot that stands for them is there, unless Consul's state is another now.
	switch err := s.client.remove(ctx, old, s.client.op(api.KVGet, keyOfMark(n.snapshot), nil)); {
	case errors.Is(err, errConflict):
		return 0, nil
	case err != nil:
		return 0, s.client.explain(err)
	}
	return len(old), nil
}

// unmark deletes the marks of those chunks that nobody needs: then nobody can come to need them. It
// returns what is needed; nil: Consul's state is not of the generation any more.
func (s *Store) unmark(ctx context.Context, generation int, chunks map[string][]string) (*needed, error) {
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()
	for range compactTries {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
		known := s.state.Load()
		if known.generation != generation || s.head.Snapshot == nil {
			return nil, nil
		}
		n := s.needed()
		var marks []string
		for name := range chunks {
			if !n.keep[name] {
				marks = append(marks, keyOfMark(name))
			}
		}
		still := s.client.op(api.KVCheckIndex, keyHead, nil)
		still.KV.Index = s.headAt
		err := s.client.remove(ctx, marks, still, s.client.op(api.KVGet, keyOfTip(known.Entry), nil))
		switch {
		case err == nil:
			return n, nil
		case !errors.Is(err, errConflict):
			return nil, s.client.explain(err)
		}
	}
	return nil, fmt.Errorf("other replicas were faster %d times", compactTries)
}

// needed is what something refers to.
type needed struct {
	keep     map[string]bool // chunks
	former   uint64          // the entry of the former snapshot: newer ones are needed
	snapshot string          // the chunks of the snapshot
}

// needed is what the known head and entries refer to. Its caller has the turn.
func (s *Store) needed() *needed {
	n := &needed{keep: map[string]bool{}, former: sequenceOf(s.head.Former), snapshot: s.head.Snapshot.Chunks}
	for sequence, name := range s.chunked {
		n.keep[name] = sequence > n.former
	}
	for _, r := range []*snapshotRef{s.head.Snapshot, s.head.Former} {
		if r != nil {
			n.keep[r.Chunks] = true
		}
	}
	return n
}
