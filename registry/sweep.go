package registry

import (
	"context"
	"time"
)

const (
	// sweepGap is the least time between two sweeps: a sweep looks at everything, and a fleet may go all at once.
	sweepGap = 100 * time.Millisecond
	// keepGap is the least time between two writes of the file; a write that takes long is followed by a longer one.
	keepGap = 100 * time.Millisecond
)

// Run ends registrations whose lease has ended and keeps what changes in the file, until ctx ends; then it keeps it once
// more and returns nil.
func (m *Memory) Run(ctx context.Context) error {
	sweep, keep := time.NewTimer(m.untilSweep()), time.NewTimer(0)
	defer sweep.Stop()
	defer keep.Stop()
	<-keep.C
	dirty, waiting := false, false // waiting: keep is set
	for {
		select {
		case <-ctx.Done():
			m.keep()
			return nil
		case <-m.due:
			sweep.Reset(m.untilSweep())
			continue
		case <-sweep.C:
			m.sweep(time.Now())
			sweep.Reset(m.untilSweep())
			continue
		case <-m.changed:
			dirty = true
		case <-keep.C:
			waiting = false
		}
		if dirty && !waiting {
			start := time.Now()
			m.keep()
			keep.Reset(max(keepGap, 20*time.Since(start)))
			dirty, waiting = false, true
		}
	}
}

// untilSweep is how long to wait for the next sweep.
func (m *Memory) untilSweep() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next.IsZero() {
		return time.Hour // expire wakes
	}
	return max(sweepGap, time.Until(m.next))
}

// sweep ends the registrations whose lease has ended and finds the next end.
func (m *Memory) sweep(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = time.Time{}
	for key, r := range m.all.All() { // of this moment, whatever set does
		switch {
		case r.Lease.IsZero():
		case r.Lease.After(now):
			if m.next.IsZero() || r.Lease.Before(m.next) {
				m.next = r.Lease
			}
		default:
			m.cfg.Log.Info("workload is not registered any more: its proxy did not come back", "workload", key.Namespace+"/"+key.Name, "group", key.Group, "until", r.Lease)
			m.set(key, nil)
		}
	}
}
