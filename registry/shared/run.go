package shared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// patience is how long the store may take for one reading or one batch of writes.
	patience = 10 * time.Second
	// retry is how long to wait after the store did not take something.
	retry = time.Second
	// sweepGap is the least time between two sweeps: a fleet may go all at once.
	sweepGap = 100 * time.Millisecond
	// farewell is how long it may take to say that this replica ends.
	farewell = 2 * time.Second
)

// Run keeps up with the other replicas, writes what the streams of this one say, says that it is alive, and ends
// registrations whose time is over, until ctx ends; then it says that this replica has ended, and returns nil.
func (r *Runtime) Run(ctx context.Context) error {
	registrations, replicas := r.cfg.Records.Watch(ctx, registrationTable), r.cfg.Records.Watch(ctx, replicaTable)
	for {
		began, said := time.Now(), r.said
		wait := time.NewTimer(r.turn(ctx))
		took, ended := time.Since(began), time.Now()
		if r.touch.IsZero() {
			said = nil // what is said now waits with the rest for the store
		}
		select {
		case <-ctx.Done():
			wait.Stop()
			return r.leave()
		case <-registrations:
			r.unread.registrations = true
		case <-replicas:
			r.unread.replicas = true
		case <-said:
		case <-wait.C:
		}
		wait.Stop()
		rest(ctx, time.Until(ended.Add(min(took, sweepGap))))
	}
}

// rest waits. A turn begins no earlier after one than that took: a storm of changes takes half of the time at most.
func rest(ctx context.Context, left time.Duration) {
	gap := time.NewTimer(left)
	defer gap.Stop()
	select {
	case <-ctx.Done():
	case <-gap.C:
	}
}

// turn does what is to be done now, and returns after how long to look again.
func (r *Runtime) turn(ctx context.Context) time.Duration {
	err := r.work(ctx)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		r.touch = time.Time{}
		r.fail("share registrations", err)
		return retry
	}
	r.recovered()
	return max(sweepGap, time.Until(r.next()))
}

// work reads, writes and sweeps. Errors: the store does not do its part.
func (r *Runtime) work(ctx context.Context) error {
	if r.beatIsDue() { // all is looked at now and then, whatever was told
		r.unread = tables{registrations: true, replicas: true}
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	if err := r.stayAlive(ctx); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	r.lookAfter(ctx, time.Now())
	return r.sweep(ctx, time.Now())
}

// beatIsDue says that it is time to say again that this replica is alive.
func (r *Runtime) beatIsDue() bool { return r.touch.IsZero() || !time.Now().Before(r.beat) }

// stayAlive says that this replica is alive when it is time to, also in the middle of much that is written. Errors: the store does
// not take it.
func (r *Runtime) stayAlive(ctx context.Context) error {
	if !r.beatIsDue() {
		return nil
	}
	now := time.Now()
	if err := r.sayAlive(ctx); err != nil {
		return err
	}
	r.beat = now.Add(r.cfg.Beat)
	if r.touch.IsZero() {
		r.touch = now
	}
	return nil
}

// commit writes one batch. Errors: as of record.Store; it takes longer than patience.
func (r *Runtime) commit(ctx context.Context, writes ...record.Write) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.cfg.Records.Commit(ctx, writes...)
}

// next is when something is to be done although nobody says anything.
func (r *Runtime) next() time.Time {
	next := r.beat
	for key, o := range r.orphans {
		if at := r.ends(o); at.Before(next) && r.mine(r.shared[key].owner) {
			next = at
		}
	}
	if _, at := r.ruins(time.Now()); !at.IsZero() && at.Before(next) {
		next = at
	}
	return next
}

// sweep ends the registrations whose time is over and that are this replica's to end, and forgets replicas that were lost
// long ago. Errors: the store does not take it.
func (r *Runtime) sweep(ctx context.Context, now time.Time) error {
	for batch := range slices.Chunk(r.ended(now), batchWrites) {
		if err := r.stayAlive(ctx); err != nil {
			return err
		}
		writes := make([]record.Write, len(batch))
		for i, key := range batch {
			writes[i] = record.Write{Key: entryKey(key), Version: r.orphans[key].version}
		}
		done, err := r.end(ctx, writes)
		if err != nil {
			return err
		}
		for _, key := range batch {
			if done {
				r.cfg.Log.Info("workload is not registered any more: its proxy did not come back", "workload", key.Namespace+"/"+key.Name, "group", key.Group)
			}
		}
	}
	if err := r.clear(ctx, now); err != nil {
		return err
	}
	var writes []record.Write
	for id, x := range r.replicas {
		if !x.lost.IsZero() && now.Sub(x.lost) > 2*r.cfg.LostGrace && r.mine(id) {
			writes = append(writes, record.Write{Key: record.Key{Table: replicaTable, Name: id}, Version: x.version})
		}
	}
	_, err := r.end(ctx, writes)
	if err == nil {
		err = r.read(ctx)
	}
	return err
}

// end deletes records, and says whether it did: not when one has changed, as when it was heard of meanwhile or another
// replica was faster. The next turn sees.
func (r *Runtime) end(ctx context.Context, writes []record.Write) (bool, error) {
	if len(writes) == 0 {
		return false, nil
	}
	r.unread = tables{registrations: true, replicas: true}
	err := r.commit(ctx, writes...)
	if errors.Is(err, record.ErrConflict) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("end registrations: %w", err)
	}
	return true, nil
}

// ended are the registrations whose time is over and that are this replica's to end.
func (r *Runtime) ended(now time.Time) []registry.RegistrationKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []registry.RegistrationKey
	for key, o := range r.orphans {
		if !r.ends(o).After(now) && r.shared[key].version == o.version && r.mine(r.shared[key].owner) {
			out = append(out, key)
		}
	}
	return out
}

// leave says that this replica has ended. Where it cannot be said, the others find out.
func (r *Runtime) leave() error {
	if r.beats == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if err := r.cfg.Records.Commit(ctx, record.Write{Key: record.Key{Table: replicaTable, Name: r.id}, Version: record.Any}); err != nil {
		r.cfg.Log.Warn("the other replicas are not told that this one ends, and find out by themselves", "error", err)
	}
	return nil
}
