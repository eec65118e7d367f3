package shared

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// kept is a registration as the records have it. The zero value is none.
type kept struct {
	registration *registry.Registration
	value        []byte
	version      string
	owner        string // the id of the replica that wrote it
}

// tables are those that have changed since they were read.
type tables struct{ registrations, replicas bool }

// read has what is shared be what the records have, as far as they have changed. Errors: they cannot be read; then what was
// read last counts.
func (r *Runtime) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.unread.replicas {
		list, err := r.cfg.Records.List(ctx, replicaTable)
		if err != nil {
			return fmt.Errorf("read who is alive: %w", err)
		}
		r.unread.replicas = false
		r.takeSigns(list)
	}
	if r.unread.registrations {
		if err := r.readRegistrations(ctx); err != nil {
			return fmt.Errorf("read registrations: %w", err)
		}
		r.unread.registrations = false
	}
	return nil
}

// readRegistrations reads what has changed, of a store that tells, or all.
func (r *Runtime) readRegistrations(ctx context.Context) error {
	c, tells := r.cfg.Records.(record.Changer)
	if !tells {
		list, err := r.cfg.Records.List(ctx, registrationTable)
		if err == nil {
			r.takeAll(list)
		}
		return err
	}
	list, now, err := c.Changes(ctx, registrationTable, r.mark)
	if err != nil {
		return err
	}
	r.mark = now
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range list {
		if rec.Version == "" {
			r.drop(rec.Name)
		} else {
			r.take(rec)
		}
	}
	return nil
}

// takeAll takes in what has changed since the last reading.
func (r *Runtime) takeAll(list []record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(map[string]bool, len(list))
	for _, rec := range list {
		there[rec.Name] = true
		if key, known := r.names[rec.Name]; known && r.shared[key].version == rec.Version || r.damaged[rec.Name].version == rec.Version {
			continue
		}
		r.take(rec)
	}
	for name := range r.damaged {
		if !there[name] {
			r.drop(name)
		}
	}
	for name := range r.names {
		if !there[name] {
			r.drop(name)
		}
	}
}

// drop takes in that a record is gone. mu is held.
func (r *Runtime) drop(name string) {
	delete(r.damaged, name)
	if key, known := r.names[name]; known {
		delete(r.names, name)
		delete(r.shared, key)
		r.arrange(key)
	}
}

// take takes in one record that has changed. Of one that cannot be read the last content stays in force. mu is held.
func (r *Runtime) take(rec record.Record) {
	reg, owner, err := decode(rec)
	if err != nil {
		r.takeDamaged(rec, err)
		return
	}
	delete(r.damaged, rec.Name)
	key := reg.RegistrationKey
	k := kept{registration: reg, value: rec.Value, version: rec.Version, owner: owner}
	switch w := r.own[key]; { // an equal one keeps its pointer
	case bytes.Equal(r.shared[key].value, rec.Value):
		k.registration = r.shared[key].registration
	case w != nil && w.says != nil && r.wrote(w, k):
		k.registration = w.says
	}
	r.names[rec.Name], r.shared[key] = key, k
	r.arrange(key)
}

// version is that of a workload's record, whether it can be read or not. mu is held.
func (r *Runtime) version(key registry.RegistrationKey) string {
	if k, found := r.shared[key]; found {
		return k.version
	}
	return r.damaged[entryKey(key).Name].version
}

// spoken says that a stream which is there speaks for a registration, as far as this replica knows. mu is held.
func (r *Runtime) spoken(key registry.RegistrationKey, k kept) bool {
	if k.registration.Session == "" {
		return false
	}
	if k.owner == r.id { // the records may be older than this replica's last word: the store was restored
		w := r.own[key]
		return w != nil && w.session == k.registration.Session
	}
	return r.isAlive(k.owner)
}

// wrote says that a record has what a word says. mu is held.
func (r *Runtime) wrote(w *word, k kept) bool {
	value, err := encode(r.id, w.says)
	return err == nil && bytes.Equal(value, k.value)
}

// arrange does what follows from another record of a workload: when it ends, and who speaks for it. mu is held.
func (r *Runtime) arrange(key registry.RegistrationKey) {
	r.expect(key)
	r.reassert(key)
	r.settle(key)
}

// reassert has a stream of this replica that is there still speak for its workload again, when nobody else does: its record
// is gone, for this replica was thought to be lost, or whoever took its place has left. mu is held.
func (r *Runtime) reassert(key registry.RegistrationKey) {
	w, k := r.own[key], r.shared[key]
	if w == nil || w.pending || !w.live() || k.registration != nil && k.registration.Session == w.session {
		return
	}
	if k.registration != nil && r.spoken(key, k) {
		return
	}
	w.written, w.failed, w.over = false, false, r.version(key)
	r.pend(key, w)
}
