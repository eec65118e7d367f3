package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// missedBeats is the number of heartbeats after which a replica that sends none is lost.
const missedBeats = 4

// replica is the state of another replica.
type replica struct {
	replicaRecord
	version string
	beats   int       // heartbeats received since this replica started
	seen    time.Time // when the last heartbeat was received, or the store became available
	lost    time.Time // when the replica was lost; zero: it is alive
}

// heartbeat writes the record of this replica if it is due. It returns an error if the store is
// unavailable.
func (r *Runtime) heartbeat(ctx context.Context) error {
	now := time.Now()
	if r.available && now.Before(r.nextHeartbeat) {
		return nil
	}
	if !r.cfg.SingleReplica {
		value, err := json.Marshal(replicaRecord{
			Name: r.cfg.Replica, Advertise: r.cfg.Advertise, Address: r.cfg.Address, Count: r.count + 1,
		})
		if err != nil {
			return err
		}
		key := record.Key{Table: replicaTable, Name: r.id}
		if err := r.commit(ctx, record.Write{Key: key, Value: value, Version: record.Any}); err != nil {
			return fmt.Errorf("write the heartbeat: %w", err)
		}
		r.count++
	}
	r.nextHeartbeat = now.Add(r.cfg.Heartbeat)
	if !r.available {
		r.available = true
		r.restartTimers()
	}
	return nil
}

// restartTimers starts all waiting times again. While the store was unavailable, other replicas
// could write neither heartbeats nor registrations.
func (r *Runtime) restartTimers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.replicas {
		x.seen = time.Now()
	}
	clear(r.expiring)
	for name := range r.saved {
		r.setExpiry(name)
	}
}

// updateReplicas applies the records of replicas. The caller holds mu.
func (r *Runtime) updateReplicas(list []record.Record) {
	now := time.Now()
	found := map[string]bool{r.id: true}
	for _, rec := range list {
		found[rec.Name] = true
		x := r.replicas[rec.Name]
		if rec.Name == r.id || x != nil && x.version == rec.Version {
			continue
		}
		var value replicaRecord
		if err := json.Unmarshal(rec.Value, &value); err != nil {
			r.cfg.Log.Warn("the heartbeat of a replica cannot be read", "record", rec.Name, "error", err)
		}
		if x == nil {
			x = &replica{}
			r.replicas[rec.Name] = x
			r.cfg.Log.Info("found another replica", "replica", value.Name)
		}
		returned := !x.lost.IsZero()
		x.replicaRecord, x.version, x.seen, x.lost = value, rec.Version, now, time.Time{}
		x.beats++
		if returned {
			r.cfg.Log.Info("a replica sends heartbeats again", "replica", x.Name)
		}
		if returned || x.beats == 1 {
			r.settleOwned(rec.Name)
		}
	}
	for id, x := range r.replicas {
		if !found[id] {
			delete(r.replicas, id)
			r.cfg.Log.Info("a replica stopped", "replica", x.Name)
			r.settleOwned(id)
		}
	}
}

// findLost finds replicas that send no heartbeats.
func (r *Runtime) findLost(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, x := range r.replicas {
		if x.lost.IsZero() && now.Sub(x.seen) >= missedBeats*r.cfg.Heartbeat {
			x.lost = now
			r.cfg.Log.Warn("a replica sends no heartbeats: its registrations end unless their proxies connect again",
				"replica", x.Name, "within", r.cfg.RestartGrace)
			r.settleOwned(id)
		}
	}
}

// settleOwned settles the registrations of a replica. The caller holds mu.
func (r *Runtime) settleOwned(owner string) {
	for name, s := range r.saved {
		if s.owner == owner {
			r.settle(name, s.key)
		}
	}
}

// alive reports whether the replica with an ID sends heartbeats. The caller holds mu.
func (r *Runtime) alive(id string) bool {
	x := r.replicas[id]
	return id == r.id || x != nil && x.lost.IsZero()
}

// deletes reports whether this replica deletes the records of a replica. An alive replica deletes
// its records itself. For a lost one, the alive replica with the first ID does. The caller holds
// mu.
func (r *Runtime) deletes(owner string) bool {
	if r.alive(owner) {
		return owner == r.id
	}
	for id := range r.replicas {
		if r.alive(id) && id < r.id {
			return false
		}
	}
	return true
}

// Advertised returns Config.Advertise of the other replicas that are alive, sorted.
func (r *Runtime) Advertised() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for id, x := range r.replicas {
		if r.alive(id) {
			out = append(out, x.Advertise...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Replicas returns the number of alive replicas, including this one. Other replicas are included
// after their first heartbeat since this one started.
func (r *Runtime) Replicas() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 1
	for id, x := range r.replicas {
		if r.alive(id) && x.beats > 0 {
			n++
		}
	}
	return n
}

// Other is another replica that is alive.
type Other struct {
	// Name and Address are its Config.Replica and Config.Address.
	Name, Address string
}

// Others returns the other replicas that are alive, sorted by name.
func (r *Runtime) Others() []Other {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Other
	for id, x := range r.replicas {
		if r.alive(id) {
			out = append(out, Other{x.Name, x.Address})
		}
	}
	slices.SortFunc(out, func(a, b Other) int { return strings.Compare(a.Name, b.Name) })
	return out
}
