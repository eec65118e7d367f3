package shared

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// missed is how many beats a replica may miss before it is thought to be lost.
const missed = 4

// replica is another one, as this one sees it.
type replica struct {
	sign
	version string
	came    time.Time // when its record was seen first
	changed time.Time // when its record was seen to change last
	heard   time.Time // the same, or when it answered last
	lost    time.Time // since when it is thought to be lost; zero: it is alive
	former  bool      // it is lost, and was started again: this is its former run
	cutOff  bool      // it writes nothing and answers
	early   bool      // its record was there when this one began
	sure    bool      // its record was read after this one wrote; before, what was read may be an older one, of a copy
	beaten  bool      // it has written since this one began; else its record may be what one that was killed has left
}

// orphan is a registration that ends by and by.
type orphan struct {
	version string // of its record
	at      time.Time
	// gone says that its proxy has gone; else its replica has.
	gone bool
}

// who is what people call it; empty: it has not written since this one began.
func (x *replica) who() string {
	switch {
	case !x.beaten:
		return ""
	case x.Address == "" || strings.Contains(x.Name, x.Address):
		return cmp.Or(x.Name, "another ashored")
	default:
		return cmp.Or(x.Name, "the ashored") + " at " + x.Address
	}
}

// sayAlive writes that this replica is alive.
func (r *Runtime) sayAlive(ctx context.Context) error {
	s := r.sign()
	s.Beat = r.beats + 1
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := r.commit(ctx, record.Write{Key: record.Key{Table: replicaTable, Name: r.id}, Value: value, Version: record.Any}); err != nil {
		return fmt.Errorf("say that this replica is alive: %w", err)
	}
	r.beats++
	return nil
}

// takeSigns takes in who is alive.
func (r *Runtime) takeSigns(list []record.Record) {
	now, there := time.Now(), map[string]bool{}
	for _, rec := range list {
		if there[rec.Name] = true; rec.Name == r.id {
			continue
		}
		x := r.replicas[rec.Name]
		if x != nil && x.version == rec.Version {
			x.sure = x.sure || r.beats > 0
			continue
		}
		s, err := decodeSign(rec.Value)
		if err != nil {
			r.cfg.Log.Warn("the record of a replica cannot be read: until it writes it anew, nothing is known of it", "table", rec.Table, "record", rec.Name, "error", err)
		}
		news := x == nil || !x.lost.IsZero()
		if x == nil {
			x = &replica{came: now}
			r.replicas[rec.Name] = x
			r.sayThere(s)
		} else {
			x.beaten = x.beaten || x.sure
			if news {
				r.cfg.Log.Info("a replica is back", "replica", s.Name, "address", s.Address, "after", now.Sub(x.lost).Round(time.Second))
			}
		}
		x.sure = x.sure || r.beats > 0
		x.sign, x.version, x.changed, x.heard, x.lost, x.former, x.cutOff = s, rec.Version, now, now, time.Time{}, false, false
		if news {
			r.expectOf(rec.Name)
		}
	}
	for id, x := range r.replicas {
		if !there[id] {
			delete(r.replicas, id)
			x.sayGone(r.cfg.Log)
			r.expectOf(id)
		}
	}
	r.advertise()
}

// lookAfter finds out who is lost. It is called while the store takes what is written.
func (r *Runtime) lookAfter(ctx context.Context, now time.Time) {
	quiet := func(x *replica) time.Duration { return now.Sub(later(x.heard, r.touch)) }
	var silent []string
	for id, x := range r.replicas {
		if x.lost.IsZero() && quiet(x) >= missed*r.cfg.Beat {
			silent = append(silent, id)
		}
	}
	there := r.ask(ctx, silent)
	for i, id := range silent {
		x := r.replicas[id]
		if there[i] {
			if !x.cutOff {
				r.cfg.Log.Warn("a replica writes nothing and answers: it is cut off from the store, and its workloads count", "replica", x.Name, "address", x.Address)
				x.cutOff = true
				r.advertise()
			}
			x.heard = now
			continue
		}
		x.lost, x.cutOff = now, false
		r.sayLost(x, quiet(x))
		r.expectOf(id)
		r.advertise()
	}
}

// ask asks replicas at the same time whether they are there.
func (r *Runtime) ask(ctx context.Context, ids []string) []bool {
	there := make([]bool, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() { there[i] = r.answers(ctx, r.replicas[id]) })
	}
	asking.Wait()
	return there
}

// answers asks a replica whether it is there. Where another one has its address now, as after it was started again, nobody can
// answer for it.
func (r *Runtime) answers(ctx context.Context, x *replica) bool {
	if r.cfg.Answers == nil || x.Address == "" || x.Address == r.cfg.Address {
		return false
	}
	for _, y := range r.replicas {
		if y != x && y.Address == x.Address && y.heard.After(x.changed) && y.lost.IsZero() {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Beat/2)
	defer cancel()
	return r.cfg.Answers(ctx, x.Address)
}

// isAlive says whether the replica with an id is.
func (r *Runtime) isAlive(id string) bool {
	x := r.replicas[id]
	return id == r.id || x != nil && x.lost.IsZero()
}

// expectOf is expect of all registrations of a replica, of which something has changed.
func (r *Runtime) expectOf(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.shared {
		if k.owner == owner {
			r.expect(key)
			r.reassert(key)
			r.settle(key)
		}
	}
}

// expect notes when a registration ends if nothing more is heard of it. mu is held.
func (r *Runtime) expect(key registry.RegistrationKey) {
	k, found := r.shared[key]
	if !found || r.spoken(key, k) {
		delete(r.orphans, key)
		return
	}
	o := orphan{version: k.version, gone: k.registration.Session == ""}
	if was, known := r.orphans[key]; known && was.version == o.version {
		return // its time runs already
	}
	o.at = time.Now().Add(r.cfg.LostGrace)
	if o.gone {
		o.at = time.Now().Add(r.cfg.Grace)
	}
	r.orphans[key] = o
}

// ends is when a registration ends. When the store was away, whoever speaks for it has had no chance to say so before.
func (r *Runtime) ends(o orphan) time.Time {
	if o.gone {
		return later(o.at, r.touch.Add(r.cfg.Grace))
	}
	return later(o.at, r.touch.Add(r.cfg.LostGrace))
}

// mine says whether this replica is to end the registrations of another: that does itself, or else the first of those that are
// alive and can write.
func (r *Runtime) mine(owner string) bool {
	if owner == r.id || r.isAlive(owner) {
		return owner == r.id
	}
	alive := []string{r.id}
	for id, x := range r.replicas {
		if r.isAlive(id) && !x.cutOff {
			alive = append(alive, id)
		}
	}
	return slices.MinFunc(alive, strings.Compare) == r.id
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
