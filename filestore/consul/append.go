package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"
)

// append writes an entry. Errors: errConflict, ErrAway, ErrUnknown.
func (w *writing) append(ctx context.Context, e *attempt) error {
	s := w.store
	a := about{Format: format, position: e.next.position, Previous: e.base.Entry, By: s.cfg.Replica,
		At: time.Now().UTC()}
	if body := encodeCommits(e.commits); !bytes.Equal(w.packed.body, body) {
		w.dropChunks()
		var err error
		if w.packed, err = s.pack(ctx, body); err != nil {
			return err
		}
	}
	a.content = w.packed.content
	line, err := encodeLine(a)
	if err != nil {
		return err
	}
	h := s.head
	h.position = e.next.position
	if s.headAt == 0 {
		h = head{Format: format, position: e.next.position, Begun: a.At}
	}
	value := append(line, w.packed.raw...)
	modified, err := s.move(ctx, e.base, h, a.content, s.client.op(api.KVSet, keyOfEntry(a.Sequence), value))
	if err != nil {
		return err
	}
	s.inLog.entries++
	s.inLog.bytes += len(value)
	if a.Chunks != "" {
		s.chunked[a.Sequence] = a.Chunks
		s.inLog.bytes += a.Count * chunkSize
	}
	s.head, s.headAt, s.tipAt = h, modified, modified
	s.standing.well(s.cfg.Log)
	s.wakeCompactor()
	return nil
}

// packed is the body of an entry, and what is kept of it.
type packed struct {
	body    []byte
	content content
	raw     []byte // that stands beside the entry's line; nil: it stands in chunks
}

// pack makes what is kept of the body of an entry, and writes the chunks of one that is too large
// for one key. Errors: ErrAway.
func (s *Store) pack(ctx context.Context, body []byte) (packed, error) {
	c, raw, err := pack(body)
	if err != nil || len(raw) <= maxInline {
		return packed{body, c, raw}, err
	}
	if c, err = s.putChunks(ctx, c, raw); err != nil {
		if ctx.Err() != nil {
			s.dropChunks(c) // Consul may be well
		}
		return packed{}, fmt.Errorf("%w: %w", ErrAway, s.unwritten(ctx, err))
	}
	return packed{body: body, content: c}, nil
}

// putChunks writes a content into chunks, after a mark that is taken away before any of them. With
// an error some may stand there, until they are swept.
func (s *Store) putChunks(ctx context.Context, c content, raw []byte) (content, error) {
	c.Chunks = newChunks(time.Now())
	parts := split(raw)
	c.Count = len(parts)
	if err := s.client.put(ctx, keyOfMark(c.Chunks), []byte(s.cfg.Replica)); err != nil {
		return c, err
	}
	for i, part := range parts {
		if err := s.client.put(ctx, keyOfChunk(c.Chunks, i), part); err != nil {
			return c, err
		}
	}
	return c, nil
}

// move sets the head, with more operations or none, if what Consul holds is the base and the chunks
// of a content are there: all or nothing. The index of the head would not be enough for that: in a
// Consul that lost its state another head may come to have the same one. Errors: errConflict,
// ErrAway, ErrUnknown.
func (s *Store) move(ctx context.Context, base *state, h head, c content, more ...*api.TxnOp) (modified uint64,
	err error) {
	line, err := encodeLine(h)
	if err != nil {
		return 0, err
	}
	set := s.client.op(api.KVCAS, keyHead, line)
	set.KV.Index = s.headAt
	var ops api.TxnOps
	if base.Entry != "" {
		ops = append(ops, s.client.op(api.KVGet, keyOfTip(base.Entry), nil))
	}
	if c.Chunks != "" {
		ops = append(ops, s.client.op(api.KVGet, keyOfMark(c.Chunks), nil))
	}
	ops = append(append(ops, set), more...)
	if h.Entry != base.Entry {
		if base.Entry != "" {
			ops = append(ops, s.client.op(api.KVDelete, keyOfTip(base.Entry), nil))
		}
		ops = append(ops, s.client.op(api.KVSet, keyOfTip(h.Entry), []byte(fmt.Sprint(h.Sequence))))
	}
	return s.insist(ctx, ops)
}

// errDoubt says that a transaction which was refused may have been done before, with its answer
// lost.
var errDoubt = errors.New("an answer was lost")

// insist does a transaction. When Consul's answer is lost it is sent again: Consul does it once, as
// it asks for what it changes.
func (s *Store) insist(ctx context.Context, ops api.TxnOps) (uint64, error) {
	doubt := false
	for began := time.Now(); ; {
		modified, sent, err := s.client.transaction(ctx, ops)
		switch {
		case err == nil:
			s.standing.wrote(s.cfg.Log)
			return modified, nil
		case errors.Is(err, errConflict) && doubt:
			return 0, fmt.Errorf("%w: %w", errDoubt, err)
		case errors.Is(err, errConflict):
			return 0, err
		}
		doubt = doubt || sent
		err = s.unwritten(ctx, err)
		switch {
		case !doubt:
			return 0, fmt.Errorf("%w: %w", ErrAway, err)
		case time.Since(began) >= s.doubts() || sleep(ctx, retryPause) != nil:
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
}

// unwritten explains why Consul did not do a write, and notes what that says of others.
func (s *Store) unwritten(ctx context.Context, err error) error {
	why := s.client.explain(err)
	switch {
	case declined(err):
		s.standing.refused(why, s.cfg.Log)
	case !disliked(err):
		s.note(ctx, why)
	}
	return why
}

// doubts is how long to go on asking what became of a write: not for long when this replica ends.
func (s *Store) doubts() time.Duration {
	if s.leaving.Load() {
		return leavingDoubt
	}
	return doubtTime
}

// chunkKeys are the keys of a content, the mark first.
func chunkKeys(c content) []string {
	out := []string{keyOfMark(c.Chunks)}
	for i := range c.Count {
		out = append(out, keyOfChunk(c.Chunks, i))
	}
	return out
}
