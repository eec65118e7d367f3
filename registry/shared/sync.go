package shared

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

const (
	// timeout is how long the store may take for one read or write.
	timeout = 10 * time.Second
	// retryGap is the time between attempts while the store is unavailable.
	retryGap = time.Second
	// maxPause bounds the pause between two rounds: it lets changes of many proxies become one
	// write.
	maxPause = 100 * time.Millisecond
	// maxWrites and maxBytes limit one write.
	maxWrites, maxBytes = 256, 256 << 10
)

// Run reads what other replicas write, writes what the streams of this one sent, and deletes
// registrations that have ended, until ctx ends. Then it deletes the record of this replica and
// returns nil.
func (r *Runtime) Run(ctx context.Context) error {
	registrations, replicas := r.records.Watch(ctx, registrationTable), r.records.Watch(ctx, replicaTable)
	for {
		start := time.Now()
		err := r.sync(ctx)
		pause(ctx, min(time.Since(start), maxPause))
		if ctx.Err() != nil {
			return r.stop()
		}
		r.setFailure(err)
		work, next := r.work, r.nextExpiry(r.nextBeat)
		if err != nil {
			r.available = false
			work, next = nil, time.Now().Add(retryGap)
		}
		select {
		case <-ctx.Done():
		case <-registrations:
		case <-replicas:
		case <-work:
		case <-time.After(time.Until(next)):
		}
	}
}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sync does one round. It returns an error if the store is unavailable.
func (r *Runtime) sync(ctx context.Context) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	if err := r.heartbeat(ctx); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	return r.expire(ctx)
}

// read reads the changes in the store.
func (r *Runtime) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replicas, err := r.records.List(ctx, replicaTable)
	if err != nil {
		return fmt.Errorf("read replicas: %w", err)
	}
	changes, mark, err := r.records.Changes(ctx, registrationTable, r.mark)
	if err != nil {
		return fmt.Errorf("read registrations: %w", err)
	}
	r.mark = mark
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updateReplicas(replicas)
	for _, rec := range changes {
		r.updateRegistration(rec)
	}
	return nil
}

// updateRegistration applies a changed record. If it cannot be read, its previous content stays
// active. The caller holds mu.
func (r *Runtime) updateRegistration(rec record.Record) {
	s := r.saved[rec.Name]
	if rec.Version == "" {
		delete(r.saved, rec.Name)
		r.settle(rec.Name, s.key)
		return
	}
	s.value, s.version = rec.Value, rec.Version
	reg, owner, err := decode(rec.Name, rec.Value)
	if err != nil {
		r.cfg.Log.Error("the record of a registration cannot be read: it is ignored until its proxy connects again",
			"record", rec.Name, "error", err)
	} else {
		if r.cfg.Alone && owner != r.id { // it is from before the start: its proxy is not connected yet
			reg.Session, reg.LeaseExpiry = "", time.Now().Add(r.cfg.RestartGrace)
		}
		s.key, s.registration, s.owner = reg.RegistrationKey, reg, owner
	}
	r.saved[rec.Name] = s
	r.settle(rec.Name, s.key)
}

// write writes what is pending. It returns an error if the store is unavailable.
func (r *Runtime) write(ctx context.Context) error {
	for {
		if err := r.heartbeat(ctx); err != nil {
			return err
		}
		writes := r.writes()
		if len(writes) == 0 {
			return nil
		}
		err := r.commit(ctx, writes...)
		if err != nil && !errors.Is(err, record.ErrConflict) { // after a conflict read and retry
			return fmt.Errorf("write %d registrations, the first is %s: %w", len(writes), writes[0].Name, err)
		}
		if err := r.read(ctx); err != nil {
			return err
		}
	}
}

// writes returns as much of what is pending as one write may have.
func (r *Runtime) writes() (out []record.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := 0
	for name := range r.pending {
		value := r.local[name].value
		if size += len(value); len(out) == maxWrites || size > maxBytes && len(out) > 0 {
			break
		}
		key := record.Key{Table: registrationTable, Name: name}
		out = append(out, record.Write{Key: key, Value: value, Version: r.saved[name].version})
	}
	return out
}

func (r *Runtime) commit(ctx context.Context, writes ...record.Write) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.records.Commit(ctx, writes...)
}

// stop deletes the record of this replica. If that fails, the others find that it sends no
// heartbeats.
func (r *Runtime) stop() error {
	if r.count == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	key := record.Key{Table: replicaTable, Name: r.id}
	if err := r.records.Commit(ctx, record.Write{Key: key, Version: record.Any}); err != nil {
		r.cfg.Log.Warn("the record of this replica could not be deleted", "error", err)
	}
	return nil
}

// failure is why registrations cannot be saved. Zero if they can.
type failure struct {
	text  string
	since time.Time
}

// setFailure stores and logs the result of a round.
func (r *Runtime) setFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.failure
	switch {
	case err == nil && old.text != "":
		r.cfg.Log.Info("registrations are saved again", "after", time.Since(old.since).Round(time.Millisecond))
		r.failure = failure{}
	case err != nil && old.text == "":
		r.cfg.Log.Error("registrations cannot be saved in the store; it is tried again", "error", err)
		r.failure = failure{err.Error(), time.Now()}
	case err != nil:
		r.failure.text = err.Error()
	}
}

// Problems returns a problem while registrations cannot be saved.
func (r *Runtime) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure.text == "" {
		return nil
	}
	return []string{fmt.Sprintf("registrations and health cannot be saved in the store since %s: %s; "+
		"what proxies send is active on this replica only, and a restart loses it, until the store is available",
		r.failure.since.UTC().Format(time.RFC3339), r.failure.text)}
}

// Unshared returns the number of workloads with changes that are not written yet.
func (r *Runtime) Unshared() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}
