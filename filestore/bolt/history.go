package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// writeRecord is how a write is kept: as what undoes it. What it wrote is what the next write of the object replaced,
// and in the end what is stored now.
type writeRecord struct {
	Key  config.Key `json:"key"`
	Who  string     `json:"who"`
	When time.Time  `json:"when"`
	// Undo says that Before tells what there was. Records of releases that kept what was written lack it; they count as
	// forgotten.
	Undo bool `json:"undo,omitempty"`
	// Before is the objectRecord that was replaced or deleted; empty: there was none.
	Before json.RawMessage `json:"before,omitempty"`
}

// writeID is the key of a write: its revision and its place in the Apply, in order.
func writeID(revision uint64, place int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, revision), uint32(place))
}

const writeIDSize = 12

// historyPrefix is what the history records of one object begin with. A key has two NULs, and a name has
// none, so no other object's records do.
func historyPrefix(key config.Key) []byte { return append(objectKey(key), 0) }

// History implements config.Store.
func (s *Store) History(ctx context.Context, q config.Query) (config.Past, error) {
	var after uint64
	if q.After != "" {
		var err error
		if after, err = config.ParseRevision(q.After); err != nil {
			return config.Past{}, err
		}
	}
	var out config.Past
	err := s.view(ctx, func(t *tx) error {
		latest, err := t.revision()
		if err != nil {
			return err
		}
		since, err := t.since(latest)
		if err != nil {
			return err
		}
		out.Latest, out.Since = storage.Revision(latest), storage.Revision(since)
		r := &historian{store: s, tx: t, query: q, after: max(after, since), now: map[config.Key]json.RawMessage{}}
		out.Revisions, err = r.read(ctx)
		return err
	})
	return out, err
}

// since is the oldest revision of which it is known what was stored.
func (t *tx) since(latest uint64) (uint64, error) {
	c := t.Bucket([]byte(bucketWrites)).Cursor()
	for id, record := c.First(); id != nil; id, record = c.Next() {
		w, err := readWrite(id, record)
		if err != nil {
			return 0, err
		}
		if w.Undo {
			return revisionOf(id) - 1, nil
		}
	}
	return latest, nil
}

// historian reads writes from the latest on.
type historian struct {
	store *Store
	tx    *tx
	query config.Query
	after uint64
	now   map[config.Key]json.RawMessage // what there was after the write that is read next, by key; nil is nothing
}

// read returns the revisions that are asked for.
func (h *historian) read(ctx context.Context) ([]config.Revision, error) {
	var out []config.Revision
	if h.query.Limit < 0 {
		return nil, ctx.Err()
	}
	for id := range h.ids() {
		if revisionOf(id) <= h.after {
			break
		}
		number := storage.Revision(revisionOf(id))
		if n := len(out); n == 0 || out[n-1].Number != number {
			if h.query.Limit > 0 && n == h.query.Limit || ctx.Err() != nil {
				break
			}
			out = append(out, config.Revision{Number: number})
		}
		if err := h.add(&out[len(out)-1], id); err != nil {
			return nil, err
		}
	}
	for _, r := range out {
		slices.SortFunc(r.Writes, func(a, b config.Write) int { return a.Key.Compare(b.Key) })
	}
	return out, ctx.Err()
}

// ids are those of the writes that are asked for, the latest first.
func (h *historian) ids() func(yield func([]byte) bool) {
	bucket, prefix := bucketWrites, []byte(nil)
	if h.query.Key != (config.Key{}) {
		bucket, prefix = bucketHistory, historyPrefix(h.query.Key)
	}
	return func(yield func([]byte) bool) {
		c := h.tx.Bucket([]byte(bucket)).Cursor()
		// to the last one: the one before the first that is greater than all with the prefix
		k, _ := c.Seek(append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, writeIDSize+1)...))
		if k == nil {
			k, _ = c.Last()
		} else {
			k, _ = c.Prev()
		}
		for ; k != nil && bytes.HasPrefix(k, prefix) && yield(k[len(prefix):]); k, _ = c.Prev() {
		}
	}
}

// add adds one write to its revision.
func (h *historian) add(r *config.Revision, id []byte) error {
	w, err := readWrite(id, h.tx.Bucket([]byte(bucketWrites)).Get(id))
	if err != nil {
		return err
	}
	now, seen := h.now[w.Key]
	if !seen {
		if now, err = h.tx.get(bucketObjects, objectKey(w.Key)); err != nil {
			return err
		}
	}
	h.now[w.Key] = w.Before
	r.Who, r.When = w.Who, w.When
	out := config.Write{Key: w.Key}
	if out.After, err = h.object(w.Key, now); err != nil {
		return err
	}
	if out.Before, err = h.object(w.Key, w.Before); err != nil {
		return err
	}
	r.Writes = append(r.Writes, out)
	return nil
}

// object reads an objectRecord; nothing is none.
func (h *historian) object(key config.Key, value json.RawMessage) (*config.Object, error) {
	switch {
	case len(value) == 0:
		return nil, nil
	case h.query.Bare:
		return bareObject(key, value)
	}
	return decodeObject(h.store.Name(), key, value)
}

// revisionOf is the revision in the number of a write.
func revisionOf(id []byte) uint64 {
	if len(id) != writeIDSize {
		return 0
	}
	return binary.BigEndian.Uint64(id)
}

// readWrite reads a record of bucketWrites; nil is none.
func readWrite(id, record []byte) (writeRecord, error) {
	var w writeRecord
	if len(id) != writeIDSize {
		return w, fmt.Errorf("%x is not the number of a write", id)
	}
	value, err := unseal(bucketWrites, id, record)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(value, &w); err != nil {
		return w, fmt.Errorf("write %x: %w", id, err)
	}
	return w, nil
}

// remember adds a write to the history, before it is done.
func remember(t *tx, w writeRecord, revision uint64, place int) error {
	before, err := t.get(bucketObjects, objectKey(w.Key))
	if err != nil {
		return err
	}
	w.Before, w.Undo = before, true
	value, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("remember the write of %s: %w", w.Key, err)
	}
	id := writeID(revision, place)
	if err := t.put(bucketWrites, id, value); err != nil {
		return err
	}
	return t.put(bucketHistory, append(historyPrefix(w.Key), id...), []byte{})
}

// forget drops the oldest revisions while there are more writes than are remembered, but not the present one, and returns
// how many are left.
func forget(t *tx, writes, most int, present uint64) (int, error) {
	var dropping uint64
	for {
		id, record := t.Bucket([]byte(bucketWrites)).Cursor().First()
		revision := revisionOf(id)
		if id == nil || revision == present || writes <= most && revision != dropping {
			return writes, nil
		}
		id = bytes.Clone(id)
		w, err := readWrite(id, record)
		if err != nil {
			return 0, err
		}
		if err := t.delete(bucketHistory, append(historyPrefix(w.Key), id...)); err != nil {
			return 0, err
		}
		if err := t.delete(bucketWrites, id); err != nil {
			return 0, err
		}
		dropping = revision
		writes--
	}
}
