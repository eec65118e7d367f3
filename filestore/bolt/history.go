package bolt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// writeRecord is one write of one object in the history. What the write stored is the Before of the
// next write of the object, or the stored object.
type writeRecord struct {
	Who  string    `json:"who"`
	When time.Time `json:"when"`
	// Before is the replaced or deleted objectRecord; empty: there was none that could be read.
	Before json.RawMessage `json:"before,omitempty"`
}

// historyKey is the key of a write: revisions in order, and the objects of one in order.
func historyKey(revision uint64, key config.Key) []byte {
	return append(binary.BigEndian.AppendUint64(nil, revision), objectKey(key)...)
}

// revisionOf returns the revision in a historyKey.
func revisionOf(k []byte) uint64 { return binary.BigEndian.Uint64(k) }

// remember adds the write of an object to the history, before it is done.
func (w *writer) remember(tx *bbolt.Tx, key config.Key) error {
	r := writeRecord{Who: w.who, When: w.now}
	if w.store.objects[key] != nil {
		r.Before = tx.Bucket(bucketObjects).Get(objectKey(key))
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("remember the write of %s: %w", key, err)
	}
	history, k := tx.Bucket(bucketHistory), historyKey(w.revision, key)
	if err := history.Put(k, value); err != nil {
		return fmt.Errorf("remember the write of %s: %w", key, err)
	}
	return history.SetSequence(history.Sequence() + uint64(len(k)+len(value)))
}

// trimHistory deletes the oldest revisions while the history is too large or too old. It deletes
// whole revisions, and never the latest one.
func trimHistory(tx *bbolt.Tx, latest, maxBytes uint64, oldest time.Time) error {
	history := tx.Bucket(bucketHistory)
	size, trimmed := history.Sequence(), uint64(0)
	for {
		k, v := history.Cursor().First()
		if k == nil || revisionOf(k) == latest {
			break
		}
		if size <= maxBytes && revisionOf(k) != trimmed {
			var r writeRecord
			if err := json.Unmarshal(v, &r); err == nil && !r.When.Before(oldest) {
				break
			}
		}
		trimmed = revisionOf(k)
		size -= uint64(len(k) + len(v))
		if err := history.Delete(slices.Clone(k)); err != nil {
			return err
		}
	}
	return history.SetSequence(size)
}

// History implements config.Store.
func (s *Store) History(ctx context.Context, q config.Query) (config.Past, error) {
	h := &historian{source: s.Name(), query: q, now: map[config.Key]json.RawMessage{}}
	if q.After != "" {
		var err error
		if h.after, err = config.ParseRevision(q.After); err != nil {
			return config.Past{}, err
		}
	}
	err := s.view(ctx, func(tx *bbolt.Tx) error { return h.read(ctx, tx) })
	return h.past, err
}

// historian reads the history, the latest write first.
type historian struct {
	source string
	query  config.Query
	after  uint64
	now    map[config.Key]json.RawMessage // what there was after the write that is read next
	past   config.Past
}

func (h *historian) read(ctx context.Context, tx *bbolt.Tx) error {
	latest := tx.Bucket(bucketObjects).Sequence()
	since, c := latest, tx.Bucket(bucketHistory).Cursor()
	if k, _ := c.First(); k != nil {
		since = revisionOf(k) - 1
	}
	h.past.Latest, h.past.Since = storage.Revision(latest), storage.Revision(since)
	if h.query.Limit < 0 {
		return nil
	}
	for k, v := c.Last(); k != nil && revisionOf(k) > h.after; k, v = c.Prev() {
		key, err := parseObjectKey(k[8:])
		if err != nil {
			return err
		}
		if h.query.Key != (config.Key{}) && h.query.Key != key {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		number, n := storage.Revision(revisionOf(k)), len(h.past.Revisions)
		if n == 0 || h.past.Revisions[n-1].Number != number {
			if n > 0 && n == h.query.Limit {
				break
			}
			h.past.Revisions = append(h.past.Revisions, config.Revision{Number: number})
		}
		if err := h.add(tx, key, v); err != nil {
			return fmt.Errorf("revision %s of %s: %w", number, key, err)
		}
	}
	for _, r := range h.past.Revisions {
		slices.Reverse(r.Writes)
	}
	return nil
}

// add adds one write to the last revision.
func (h *historian) add(tx *bbolt.Tx, key config.Key, value []byte) error {
	var w writeRecord
	if err := json.Unmarshal(value, &w); err != nil {
		return err
	}
	now, seen := h.now[key]
	if !seen {
		now = tx.Bucket(bucketObjects).Get(objectKey(key))
	}
	h.now[key] = w.Before
	after, err := h.object(key, now)
	if err != nil {
		return err
	}
	before, err := h.object(key, w.Before)
	if err != nil {
		return err
	}
	r := &h.past.Revisions[len(h.past.Revisions)-1]
	r.Who, r.When = w.Who, w.When
	r.Writes = append(r.Writes, config.Write{Key: key, Before: before, After: after})
	return nil
}

// object decodes an objectRecord; nil if there is none.
func (h *historian) object(key config.Key, value json.RawMessage) (*config.Object, error) {
	switch {
	case len(value) == 0:
		return nil, nil
	case h.query.Bare:
		return decodeBare(key, value)
	}
	return decodeObject(h.source, key, value)
}
