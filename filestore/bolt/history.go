package bolt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// historyKey is the key of a write: revisions in order, and the objects of one in order.
func historyKey(revision uint64, key config.Key) []byte {
	return append(binary.BigEndian.AppendUint64(nil, revision), objectKey(key)...)
}

// revisionOf returns the revision in a historyKey.
func revisionOf(k []byte) uint64 { return binary.BigEndian.Uint64(k) }

// remember adds the write of an object to the history, before it is done.
func (w *writer) remember(tx *bbolt.Tx, key config.Key) error {
	r := storage.PastWrite{Who: w.who, When: w.now}
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
			var r storage.PastWrite
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
func (s *Store) History(ctx context.Context, q config.Query) (past config.Past, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		objects, history := tx.Bucket(bucketObjects), tx.Bucket(bucketHistory)
		h := storage.Historian{Source: s.Name(), Query: q, Latest: objects.Sequence(),
			Stored: func(k config.Key) []byte { return objects.Get(objectKey(k)) }}
		if k, _ := history.Cursor().First(); k != nil {
			h.Oldest = revisionOf(k)
		}
		var keyErr error
		past, err = h.Past(ctx, func(yield func(storage.PastKey, []byte) bool) {
			c := history.Cursor()
			for k, v := c.Last(); k != nil; k, v = c.Prev() {
				key, err := storage.ParseObjectKey(string(k[8:]))
				if err != nil {
					keyErr = err
					return
				}
				if !yield(storage.PastKey{Revision: revisionOf(k), Key: key}, v) {
					return
				}
			}
		})
		return errors.Join(err, keyErr)
	})
	return past, err
}
