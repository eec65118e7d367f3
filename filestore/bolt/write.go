package bolt

import (
	"context"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// update runs f in a transaction that is on the disk when it returns nil. Callers hold s.writing. Errors: ErrGone, and those of f and the disk.
func (s *Store) update(f func(*tx) error) error {
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.present(); err != nil {
		return err
	}
	var given *bbolt.Tx // what the disk is given, once f is done
	err := s.db.Update(func(btx *bbolt.Tx) error {
		t, err := begin(btx)
		if err != nil {
			return err
		}
		if err := f(t); err != nil {
			return err
		}
		if err := t.end(); err != nil {
			return err
		}
		given = btx
		return nil
	})
	if given != nil {
		stats := given.Stats()
		s.judge(err, stats.GetPageAlloc())
	}
	return err
}

func (s *Store) isClosed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closed
}

// Put implements config.Store. An object that is new and has no creation time gets the present.
func (s *Store) Put(ctx context.Context, o *config.Object, who string) (*config.Object, error) {
	written, _, err := s.apply(ctx, []config.Change{{Key: o.Key, Object: o, Revision: o.Revision}}, who)
	if err != nil {
		return nil, err
	}
	return written[0], nil
}

// Delete implements config.Store.
func (s *Store) Delete(ctx context.Context, key config.Key, revision, who string) error {
	_, _, err := s.apply(ctx, []config.Change{{Key: key, Revision: revision}}, who)
	return err
}

// Apply implements config.Store. All of changes get one revision.
func (s *Store) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	_, revision, err := s.apply(ctx, changes, who)
	if err != nil {
		return "", err
	}
	return storage.Revision(revision), nil
}

// apply writes all of changes, or none, and returns the written objects, nil for deleted ones.
func (s *Store) apply(ctx context.Context, changes []config.Change, who string) ([]*config.Object, uint64, error) {
	for _, c := range changes {
		if err := storage.CheckChange(c); err != nil {
			return nil, 0, err
		}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := s.checkChanges(changes); err != nil {
		return nil, 0, err
	}
	if len(changes) == 0 {
		return nil, s.revision, nil
	}
	now := time.Now().UTC()
	written := make([]*config.Object, len(changes))
	revision := s.revision + 1
	var left int
	err := s.update(func(t *tx) error {
		for i, c := range changes {
			if err := remember(t, writeRecord{Key: c.Key, Who: who, When: now}, revision, i); err != nil {
				return err
			}
			var err error
			if written[i], err = s.write(t, c, revision, now); err != nil {
				return err
			}
		}
		var err error
		if left, err = forget(t, s.writes+len(changes), s.cfg.HistoryTotal, revision); err != nil {
			return err
		}
		return t.put(bucketMeta, []byte(metaRevision), binary.BigEndian.AppendUint64(nil, revision))
	})
	if err != nil {
		return nil, 0, s.unwritten(err)
	}
	s.writes = left
	s.publish(changes, written, revision)
	return written, revision, nil
}

// checkChanges compares revisions. Callers hold s.writing, which keeps s.objects as it is.
func (s *Store) checkChanges(changes []config.Change) error {
	return storage.CheckAll(changes, func(k config.Key) *config.Object { return s.objects[k] },
		func(k config.Key) bool { return s.broken[k.String()].Text != "" })
}

// write does one change and returns the object as it is stored.
func (s *Store) write(t *tx, c config.Change, revision uint64, now time.Time) (*config.Object, error) {
	if c.Object == nil {
		return nil, t.delete(bucketObjects, objectKey(c.Key))
	}
	o := *c.Object
	if have := s.objects[c.Key]; have != nil {
		o.Created = have.Created
	} else if o.Created.IsZero() {
		o.Created = now
	}
	value, err := encodeObject(&o, revision)
	if err != nil {
		return nil, err
	}
	if err := t.put(bucketObjects, objectKey(c.Key), value); err != nil {
		return nil, err
	}
	// read back: what is handed out shares nothing with what the caller holds
	return decodeObject(s.Name(), c.Key, value)
}

// publish shows what was written to readers and feeds.
func (s *Store) publish(changes []config.Change, written []*config.Object, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	for i, c := range changes {
		delete(s.broken, c.Key.String())
		delete(s.unread, c.Key.String())
		if written[i] == nil {
			delete(s.objects, c.Key)
		} else {
			s.objects[c.Key] = written[i]
		}
		for f := range s.feeds {
			f.add(c.Key)
		}
	}
}
