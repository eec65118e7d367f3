package shared

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// batchBytes and batchWrites bound what is written at once.
	batchBytes, batchWrites = 256 << 10, 256
	// tries is how often a batch is written of which others write something at the same moment.
	tries = 10
)

// draft is a word that is to be written.
type draft struct {
	key   registry.RegistrationKey
	write record.Write
}

// write has the records say what is pending, and reads them again. Errors: the store does not take it.
func (r *Runtime) write(ctx context.Context) error {
	conflicts := 0
	for {
		if err := r.stayAlive(ctx); err != nil {
			return err
		}
		drafts := r.drafts()
		if len(drafts) == 0 {
			return nil
		}
		writes := make([]record.Write, len(drafts))
		for i, d := range drafts {
			writes[i] = d.write
		}
		err := r.commit(ctx, writes...)
		switch {
		case errors.Is(err, record.ErrConflict) && conflicts == tries:
			leaveWord(r.said) // the next turn goes on
			return nil
		case errors.Is(err, record.ErrConflict):
			conflicts++
		case err != nil:
			return fmt.Errorf("write %d registrations, the first of %s/%s: %w", len(drafts), drafts[0].key.Namespace, drafts[0].key.Name, err)
		default:
			conflicts = 0
			r.stand(drafts)
		}
		r.unread.registrations = true
		if err := r.read(ctx); err != nil {
			return err
		}
	}
}

// drafts are some of the words that the records do not have. Those that they have, or that came too late, are pending no more.
func (r *Runtime) drafts() []draft {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []draft
	size := 0
	for key, w := range r.unsaid {
		d, need := r.draft(key, w)
		if !need {
			r.done(key, w)
			continue
		}
		if size += len(d.write.Value); size > batchBytes && len(out) > 0 || len(out) == batchWrites {
			break
		}
		out = append(out, d)
	}
	return out
}

// draft is what is to be written of a word, if anything is. mu is held.
func (r *Runtime) draft(key registry.RegistrationKey, w *word) (d draft, need bool) {
	k := r.shared[key]
	if !w.replaces(k) {
		return d, false
	}
	d = draft{key, record.Write{Key: entryKey(key), Version: r.version(key)}}
	if w.says == nil {
		return d, d.write.Version != "" // also where it cannot be read
	}
	if !w.live() && k.registration == nil && w.written {
		return d, false // it is gone, and so is its record
	}
	if w.live() && !w.reported && k.registration != nil {
		if heir := inherit(w.says, k.registration); heir != w.says {
			w.says = heir
			r.settle(key)
		}
	}
	value, err := encode(r.id, w.says)
	if err != nil { // it could be encoded when it was said
		r.cfg.Log.Error("a registration cannot be written", "workload", key.Namespace+"/"+key.Name, "error", err)
		return d, false
	}
	d.write.Value = value
	return d, string(value) != string(k.value)
}

// done notes that nothing is to be written of a word. mu is held.
func (r *Runtime) done(key registry.RegistrationKey, w *word) {
	w.pending = false
	delete(r.unsaid, key)
	if w.live() {
		w.written = w.written || r.shared[key].registration != nil && r.shared[key].registration.Session == w.session
	} else {
		delete(r.own, key)
	}
	r.settle(key)
}

// stand notes that drafts stand in the records, which is seen when they are read.
func (r *Runtime) stand(drafts []draft) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range drafts {
		if w := r.own[d.key]; w != nil && d.write.Value != nil {
			if e, _, err := decode(record.Record{Key: d.write.Key, Value: d.write.Value}); err == nil && e.Session == w.session {
				w.written = true
			}
		}
	}
}
