package consul

import (
	"context"
	"errors"
	"maps"
	"time"
)

// roundGap is the least time between the end of writing and the next beginning: a storm of changes becomes few transactions.
const roundGap = 100 * time.Millisecond

// writer makes what stands in Consul what the mesh has, while the lease is held. One goroutine owns it.
type writer struct {
	e      *shard
	id     string // of the session
	offers *offers

	there     map[string]map[string]exported // the owner's entries in Consul, by name and ID
	natives   map[string]bool                // names that others than meshes have registered
	nativesAt time.Time
	refused   map[string]refusal // by the ID of an entry, until the next look
	dirty     map[string]bool    // names to be compared
	removes   bool               // nothing is to stand there
	sent      uint64             // transactions
}

// serve keeps Consul as the mesh is until ctx ends or it is withdrawn.
func (e *shard) serve(ctx context.Context, id, session string) error {
	e.held = true
	if !e.former {
		e.cfg.Log.Info("this replica registers the mesh's services in Consul", "owner", e.cfg.Options.Export.Owner, "node", e.node)
	}
	e.tell(func(s *ExportStatus) { s.Holds = true })
	w := &writer{e: e, id: id, offers: newOffers(&e.cfg.Options, e.cfg.ExportTo, e.number), dirty: map[string]bool{}, removes: e.cfg.Options.Export.Remove}
	look := time.NewTimer(0)
	defer look.Stop()
	for failures, wait := 0, time.Duration(0); ; {
		if e.isWithdrawn() {
			return w.clear(ctx)
		}
		err := w.round(ctx, session, look)
		switch {
		case ctx.Err() != nil, errors.Is(err, errLeaseLost):
			return err
		case err != nil:
			failures++
			wait = backoff(failures)
			w.there = nil // nobody knows what was done: look first
		default:
			failures, wait = 0, roundGap
		}
		e.trouble(err, failures)
		w.report()
		if err := w.idle(ctx, wait, err != nil, look); err != nil {
			return err
		}
	}
}

// idle waits for wait and, unless there is more to do, for a change or the time to look.
func (w *writer) idle(ctx context.Context, wait time.Duration, again bool, look *time.Timer) error {
	if err := sleep(ctx, wait); err != nil || again {
		return err
	}
	select {
	case <-ctx.Done():
	case <-w.e.withdraw:
	case <-w.e.wake:
	case <-look.C:
		w.nativesAt, w.refused = time.Time{}, nil
		w.there = nil
	}
	return ctx.Err()
}

// round takes in what the mesh has, looks what stands in Consul where that is not known, and writes what differs.
func (w *writer) round(ctx context.Context, session string, look *time.Timer) error {
	if s := w.e.latest.Load(); s != nil {
		w.offers.take(s.services, s.endpoints)
		maps.Copy(w.dirty, w.offers.touched)
		clear(w.offers.touched)
	}
	if w.there == nil {
		began := time.Now()
		if err := w.look(ctx, session); err != nil {
			return err
		}
		look.Reset(max(lookGap, lookCost*time.Since(began)))
	}
	if w.e.latest.Load() == nil {
		return nil // nothing is known of the mesh: what stands there stays
	}
	return w.write(ctx)
}
