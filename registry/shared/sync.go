package shared

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// timeout is how long the store may take for one read or write.
	timeout = 10 * time.Second
	// retryInterval is the time between attempts while the store is unavailable.
	retryInterval = time.Second
	// maxPause limits the pause after a round. The pause equals the duration of the round, so that
	// under load many changes share one write.
	maxPause = 100 * time.Millisecond
	// stopTimeout is how long deleting the record of this replica may take.
	stopTimeout = 2 * time.Second
	// maxWrites and maxBytes limit one commit.
	maxWrites, maxBytes = 256, 256 << 10
)

// Run synchronizes registrations with the store until ctx ends: it reads changes, writes pending
// registrations and deletes expired ones. Then it deletes the record of this replica and returns nil.
func (r *Runtime) Run(ctx context.Context) error {
	registrations, replicas := r.cfg.Records.Watch(ctx, registrationTable), r.cfg.Records.Watch(ctx, replicaTable)
	for {
		start := time.Now()
		err := r.sync(ctx)
		task.Sleep(ctx, min(time.Since(start), maxPause))
		if ctx.Err() != nil {
			return r.stop()
		}
		r.setFailure(err)
		work, next := r.work, r.nextExpiry(r.nextHeartbeat)
		if err != nil {
			r.available = false
			// A nil channel blocks: pending work must not shorten the back-off.
			work, next = nil, time.Now().Add(retryInterval)
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

// sync runs one round: read, write, expire. It returns an error if the store is unavailable.
func (r *Runtime) sync(ctx context.Context) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	return r.expire(ctx)
}

// read loads the replicas, and the registrations that changed since the last read.
func (r *Runtime) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replicas, err := r.cfg.Records.List(ctx, replicaTable)
	if err != nil {
		return fmt.Errorf("read replicas: %w", err)
	}
	changes, revision, err := r.cfg.Records.Changes(ctx, registrationTable, r.revision)
	if err != nil {
		return fmt.Errorf("read registrations: %w", err)
	}
	r.revision = revision
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
		r.cfg.Log.Error("invalid registration record; keeping its previous content until the proxy connects again",
			"record", rec.Name, "error", err)
	} else {
		// The record is from the previous process. Its proxy has RestartGrace to connect again.
		if r.cfg.SingleReplica && owner != r.id {
			reg.Session, reg.LeaseExpiry = "", time.Now().Add(r.cfg.RestartGrace)
		}
		s.key, s.registration, s.owner = reg.RegistrationKey, reg, owner
	}
	r.saved[rec.Name] = s
	r.settle(rec.Name, s.key)
}

// write sends a heartbeat and commits pending registrations in batches. It returns an error if the
// store is unavailable.
func (r *Runtime) write(ctx context.Context) error {
	for {
		if err := r.heartbeat(ctx); err != nil {
			return err
		}
		writes := r.nextBatch()
		if len(writes) == 0 {
			return nil
		}
		err := r.commit(ctx, writes...)
		if err != nil && !errors.Is(err, record.ErrConflict) { // after a conflict, read the new versions and retry
			return fmt.Errorf("write %d registrations, the first is %s: %w", len(writes), writes[0].Name, err)
		}
		if err := r.read(ctx); err != nil {
			return err
		}
	}
}

// nextBatch returns pending registrations, up to the limits of one commit.
func (r *Runtime) nextBatch() (out []record.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := 0
	for name := range r.pending {
		value := r.local[name].value
		size += len(value)
		if full := len(out) == maxWrites || size > maxBytes; full && len(out) > 0 { // a large value has its own commit
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
	return r.cfg.Records.Commit(ctx, writes...)
}

// stop deletes the record of this replica. If that fails, other replicas remove it when they miss
// its heartbeats.
func (r *Runtime) stop() error {
	if r.count == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	key := record.Key{Table: replicaTable, Name: r.id}
	if err := r.cfg.Records.Commit(ctx, record.Write{Key: key, Version: record.Any}); err != nil {
		r.cfg.Log.Warn("the record of this replica could not be deleted", "error", err)
	}
	return nil
}

// failure describes the current outage of the store. Zero if the store is available.
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
		r.cfg.Log.Info("the store is available again", "outage", time.Since(old.since).Round(time.Millisecond))
		r.failure = failure{}
	case err != nil && old.text == "":
		r.cfg.Log.Error("cannot save registrations; retrying", "error", err)
		r.failure = failure{err.Error(), time.Now()}
	case err != nil:
		r.failure.text = err.Error()
	}
}

// Problems reports the current outage of the store, if there is one.
func (r *Runtime) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure.text == "" {
		return nil
	}
	return []string{fmt.Sprintf("the store has been unavailable since %s: %s. "+
		"New registrations and health are active on this replica only, and a restart loses them",
		r.failure.since.UTC().Format(time.RFC3339), r.failure.text)}
}

// Unshared returns the number of workloads whose changes are pending.
func (r *Runtime) Unshared() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}
