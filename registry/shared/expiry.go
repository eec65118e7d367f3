package shared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// expiry is when a record of a registration will be deleted.
type expiry struct {
	version string
	at      time.Time
}

// setExpiry starts or stops the time after which a record is deleted. The caller holds mu.
func (r *Runtime) setExpiry(name string) {
	s := r.saved[name]
	if s.registration == nil || r.connected(&s) {
		delete(r.expiring, name)
		return
	}
	if r.expiring[name].version == s.version {
		return
	}
	grace := r.cfg.RestartGrace
	// A replica that stops may disconnect all proxies, and alone it has no other to take them.
	if stopped := r.cfg.SingleReplica && s.owner != r.id; !stopped && !s.registration.DisconnectedAt.IsZero() {
		grace = r.cfg.Grace
	}
	r.expiring[name] = expiry{s.version, time.Now().Add(grace)}
}

// expire deletes the records of registrations that have ended, and of replicas that were lost long
// ago. It returns an error if the store is unavailable.
func (r *Runtime) expire(ctx context.Context) error {
	now := time.Now()
	r.findLost(now)
	for batch := range slices.Chunk(r.expired(now), maxWrites) {
		if err := r.heartbeat(ctx); err != nil {
			return err
		}
		err := r.commit(ctx, batch...)
		if err != nil && !errors.Is(err, record.ErrConflict) { // after a conflict the next round retries
			return fmt.Errorf("delete registrations that ended: %w", err)
		}
		for _, w := range batch {
			if err == nil && w.Table == registrationTable {
				r.cfg.Log.Info("registration ended: the proxy did not reconnect", "workload", w.Name)
			}
		}
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// expired returns the deletions that are due and that this replica makes.
func (r *Runtime) expired(now time.Time) (out []record.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range r.expiring {
		if !e.at.After(now) && r.deletes(r.saved[name].owner) {
			out = append(out, record.Write{Key: record.Key{Table: registrationTable, Name: name}, Version: e.version})
		}
	}
	for id, x := range r.replicas {
		if !x.lost.IsZero() && now.Sub(x.lost) > 2*r.cfg.RestartGrace && r.deletes(id) {
			out = append(out, record.Write{Key: record.Key{Table: replicaTable, Name: id}, Version: x.version})
		}
	}
	return out
}

// nextExpiry returns when this replica must delete a record next, but not later than limit.
func (r *Runtime) nextExpiry(limit time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range r.expiring {
		if e.at.Before(limit) && r.deletes(r.saved[name].owner) {
			limit = e.at
		}
	}
	return limit
}
