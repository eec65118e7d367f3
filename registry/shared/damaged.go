package shared

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// ruin is a record of a registration that cannot be read.
type ruin struct {
	version string
	// ends is when it is deleted unless somebody writes it anew; zero: what it said before is known, and counts, or a later release
	// wrote it.
	ends time.Time
}

// takeDamaged takes in a record that cannot be read: what it said before counts, and a stream that is there writes it anew. Where
// nobody knows what it said it is deleted in a while. mu is held.
func (r *Runtime) takeDamaged(rec record.Record, why error) {
	key, known := r.names[rec.Name]
	x := ruin{version: rec.Version}
	if !known && !errors.Is(why, errNewer) {
		x.ends = time.Now().Add(r.cfg.LostGrace)
	}
	r.damaged[rec.Name] = x
	if !known {
		r.cfg.Log.Error("the record of a registration cannot be read, and its workload is not known until its proxy connects anew", "table", rec.Table, "record", rec.Name, "error", why)
		return
	}
	r.cfg.Log.Error("the record of a registration cannot be read, and what it said before counts, until its proxy connects anew", "table", rec.Table, "record", rec.Name, "error", why)
	k := r.shared[key]
	k.value, k.version = nil, rec.Version
	r.shared[key] = k
	if w := r.own[key]; w != nil && w.live() && k.registration.Session == w.session {
		r.pend(key, w)
	}
	r.arrange(key)
}

// ruins are the records that cannot be read and are to be deleted by this replica now, and when the next one is; zero: none.
func (r *Runtime) ruins(now time.Time) (due []record.Write, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mine("") {
		return nil, time.Time{}
	}
	for name, x := range r.damaged {
		switch at := later(x.ends, r.touch.Add(r.cfg.LostGrace)); {
		case x.ends.IsZero():
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			due = append(due, record.Write{Key: record.Key{Table: registrationTable, Name: name}, Version: x.version})
		}
	}
	return due, next
}

// clear deletes records that cannot be read and that nobody has written anew. Errors: the store does not take it.
func (r *Runtime) clear(ctx context.Context, now time.Time) error {
	due, _ := r.ruins(now)
	for batch := range slices.Chunk(due, batchWrites) {
		done, err := r.end(ctx, batch)
		if err != nil {
			return err
		}
		for _, w := range batch {
			if done {
				r.cfg.Log.Warn("a record of a registration that could not be read is deleted: no proxy has come for it", "table", w.Table, "record", w.Name)
			}
		}
	}
	return nil
}
