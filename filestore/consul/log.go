package consul

import (
	"context"
	"errors"
	"fmt"
)

var (
	// errMissed says that entries were deleted before they were read, as they are part of a
	// snapshot.
	errMissed = errors.New("an entry is missing")
	// errUnchained says that an entry does not follow on the one before.
	errUnchained = errors.New("an entry does not follow on the one before")
)

// readAhead is how many entries are read at once.
const readAhead = 16

// follow applies the entries from the state to a head. Errors: errMissed, errUnchained, and what
// makes no sense.
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
			return s.damaged(keyOfChunk(r.Chunks, 0), fmt.Errorf("the snapshot is of entry %d, %s", next.Sequence,
				next.Entry))
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
