package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// Write is one past write of an object.
type Write struct {
	// Revision is that of the store after the write.
	Revision string
	// Who wrote it, in the words of the writer's caller, and when.
	Who  string
	When time.Time
	// Object is what was written; nil for a deletion.
	Object *config.Object
}

// writeRecord is how a write is kept.
type writeRecord struct {
	Key     config.Key `json:"key"`
	Who     string     `json:"who"`
	When    time.Time  `json:"when"`
	Deleted bool       `json:"deleted,omitempty"`
	// Object is the objectRecord that was written.
	Object json.RawMessage `json:"object,omitempty"`
}

// writeID is the key of a write: its revision and its place in the Apply, in order.
func writeID(revision uint64, place int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, revision), uint32(place))
}

const writeIDSize = 12

// historyPrefix is what the history records of one object begin with. A key has two NULs, and a name has
// none, so no other object's records do.
func historyPrefix(key config.Key) []byte { return append(objectKey(key), 0) }

// History lists the last writes of an object, the latest first: at most limit, all that are remembered when
// limit is 0. An object that was deleted has a history too. One without any is not an error.
func (s *Store) History(ctx context.Context, key config.Key, limit int) ([]Write, error) {
	var out []Write
	err := s.view(ctx, func(t *tx) error {
		prefix := historyPrefix(key)
		ids := t.keys(bucketHistory, prefix)
		for i := len(ids) - 1; i >= 0 && (limit <= 0 || len(out) < limit); i-- {
			w, err := s.readWrite(t, ids[i][len(prefix):])
			if err != nil {
				return err
			}
			out = append(out, w)
		}
		return nil
	})
	return out, err
}

// readWrite reads one write.
func (s *Store) readWrite(t *tx, id []byte) (Write, error) {
	if len(id) != writeIDSize {
		return Write{}, fmt.Errorf("%x is not the number of a write", id)
	}
	value, err := t.get(bucketWrites, id)
	if err != nil {
		return Write{}, err
	}
	var r writeRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return Write{}, fmt.Errorf("write %x: %w", id, err)
	}
	w := Write{Revision: formatRevision(binary.BigEndian.Uint64(id)), Who: r.Who, When: r.When}
	if r.Deleted {
		return w, nil
	}
	w.Object, err = decodeObject(s.Name(), r.Key, r.Object)
	return w, err
}

// remember adds a write to the history.
func (s *Store) remember(t *tx, w writeRecord, revision uint64, place int) error {
	if !w.Deleted {
		value, err := t.get(bucketObjects, objectKey(w.Key))
		if err != nil {
			return err
		}
		w.Object = value
	}
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

// forget drops the oldest writes beyond the bounds, of each object that changed and of all, and returns
// how many are left.
func (s *Store) forget(t *tx, changes []config.Change) (int, error) {
	left := s.writes + len(changes)
	for _, c := range changes {
		prefix := historyPrefix(c.Key)
		ids := t.keys(bucketHistory, prefix)
		for len(ids) > s.cfg.HistoryPerObject {
			if err := forgetWrite(t, c.Key, ids[0][len(prefix):]); err != nil {
				return 0, err
			}
			ids = ids[1:]
			left--
		}
	}
	for ; left > s.cfg.HistoryTotal; left-- {
		if err := forgetOldest(t); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// forgetOldest drops the oldest write of all.
func forgetOldest(t *tx) error {
	id, record := t.Bucket([]byte(bucketWrites)).Cursor().First()
	value, err := unseal(bucketWrites, id, record)
	if err != nil {
		return err
	}
	var w writeRecord
	if err := json.Unmarshal(value, &w); err != nil {
		return fmt.Errorf("write %x: %w", id, err)
	}
	return forgetWrite(t, w.Key, bytes.Clone(id))
}

func forgetWrite(t *tx, key config.Key, id []byte) error {
	if err := t.delete(bucketHistory, append(historyPrefix(key), id...)); err != nil {
		return err
	}
	return t.delete(bucketWrites, id)
}
