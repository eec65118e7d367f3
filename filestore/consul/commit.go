package consul

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// raceTime is how long a write is tried again because other replicas were faster.
	raceTime = 30 * time.Second
	// unknownTime is how long the outcome of a write is determined when an answer is lost.
	unknownTime = 15 * time.Second
	// retryPause is the time between two tries of that.
	retryPause = 200 * time.Millisecond
)

// commit writes the items that plan returns for a state, and returns the state after it. plan is
// called again when another replica was faster. If it returns an error or no items, nothing is
// written; this is decided on the latest state. If ctx ends before the write begins, nothing is
// written. Errors: those of plan and ctx, ErrAway, ErrUnknown.
func (l *replicatedLog) commit(ctx context.Context, plan func(*state) ([]item, error)) (*state, error) {
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	latest := false // the state was read from Consul after this call
	for end := time.Now().Add(raceTime); time.Now().Before(end); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// What is sent during an outage may be done much later.
		if err := l.health.outage(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAway, err)
		}
		base := l.state.Load()
		items, err := plan(base)
		if err != nil || len(items) == 0 {
			if latest {
				return base, err
			}
			if err := l.catchUp(ctx); err != nil {
				return nil, err
			}
			latest = true
			continue
		}
		next, err := l.append(ctx, base, items)
		if err == nil {
			// A refresh may have read this entry already, or a new snapshot before it.
			for now := base; now.ID == base.ID && !l.swap(now, next); {
				now = l.state.Load()
			}
			l.checkLength(next)
			return next, nil
		}
		if !errors.Is(err, errConflict) {
			return nil, err
		}
		if err := l.catchUp(ctx); err != nil {
			return nil, err
		}
		latest = true
	}
	return nil, fmt.Errorf("%w: other replicas were faster for %s: try again", ErrAway, raceTime)
}

// catchUp is refresh for a write.
func (l *replicatedLog) catchUp(ctx context.Context) error {
	err := l.refresh(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return err
}

// append writes an entry after a state, and returns the state with it. Errors: errConflict,
// ErrAway, ErrUnknown.
func (l *replicatedLog) append(ctx context.Context, base *state, items []item) (*state, error) {
	e := entry{Format: format, Revision: base.Revision + 1, ID: newID(), Previous: base.ID, By: l.cfg.Replica,
		At: time.Now().UTC()}
	var body []byte
	var err error
	if e.content, body, err = encodeItems(items); err != nil {
		return nil, err
	}
	stored := len(body)
	if len(body) > maxInline {
		if err := l.putBlob(ctx, &e.content, blobName("blob", e.Revision, e.ID), body); err != nil {
			return nil, err
		}
		body = nil
	}
	next := base.with(items, e.ID, l.decode)
	next.Format, next.Revision, next.ID = format, e.Revision, e.ID
	if next.Log == "" {
		next.Log = newID()
	}
	next.Bytes += stored
	head, err := l.setHead(next.head, base.index)
	if err != nil {
		return nil, err
	}
	line, err := encodeLine(e)
	if err != nil {
		return nil, err
	}
	create := l.client.op(api.KVCAS, l.keyOfEntry(e.Revision), append(line, body...), 0)
	next.index, err = l.send(context.WithoutCancel(ctx), api.TxnOps{head, create}, e)
	return next, err
}

// setHead sets the head, if it has an index.
func (l *replicatedLog) setHead(h head, index uint64) (*api.TxnOp, error) {
	line, err := encodeLine(h)
	return l.client.op(api.KVCAS, l.keyOfHead(), line, index), err
}

// send does the transaction that writes an entry, and returns the index of the head. If the answer
// is lost it sends the transaction again: Consul does it once, because of the index of the head.
// Errors: errConflict, ErrAway, ErrUnknown.
func (l *replicatedLog) send(ctx context.Context, ops api.TxnOps, e entry) (uint64, error) {
	unsure := false
	for began := time.Now(); ; {
		index, sent, err := l.client.transaction(ctx, ops)
		switch {
		case err == nil && index > 0:
			l.health.setWrite(nil)
			return index, nil
		case err == nil:
			err = errForeign
		case errors.Is(err, errConflict) && !unsure:
			return 0, err
		case errors.Is(err, errConflict): // by this entry, or by that of another replica
			if index, err = l.find(ctx, e); err == nil || errors.Is(err, errConflict) {
				return index, err
			}
		}
		unsure = unsure || sent
		reason := l.unwritten(err)
		if !unsure {
			return 0, fmt.Errorf("%w: %w", ErrAway, reason)
		}
		if time.Since(began) > unknownTime || l.health.stopping.Load() {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, reason)
		}
		task.Sleep(ctx, retryPause)
	}
}

// find looks for an entry that may have been written, and returns the index of the head that was
// written with it. Errors: errConflict, if another entry has its revision.
func (l *replicatedLog) find(ctx context.Context, e entry) (uint64, error) {
	pair, err := l.client.get(ctx, l.keyOfEntry(e.Revision))
	if err != nil {
		return 0, err
	}
	if pair == nil {
		return 0, consulError("the Consul has no such entry any more")
	}
	if found, _, err := parseEntry(pair.Value); err != nil || found.ID != e.ID {
		return 0, errConflict
	}
	return pair.ModifyIndex, nil
}

// unwritten explains why a write failed, and has health look for the cause.
func (l *replicatedLog) unwritten(err error) error {
	if reason, ok := errors.AsType[consulError](err); ok {
		return reason
	}
	reason := l.client.explain(err)
	if deniesToken(err) {
		l.health.setWrite(reason)
	} else {
		l.health.suspect()
	}
	return reason
}

// putBlob writes a body in parts. Errors: ErrAway, and that of ctx.
func (l *replicatedLog) putBlob(ctx context.Context, c *content, name string, body []byte) error {
	c.Blob = name
	for ; len(body) > 0; c.Parts++ {
		part := body[:min(len(body), partSize)]
		body = body[len(part):]
		err := l.client.put(ctx, l.keyOfPart(c.Blob, c.Parts), part)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrAway, l.unwritten(err))
		}
		if err != nil {
			return ctx.Err()
		}
	}
	return nil
}
