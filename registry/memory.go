package registry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// MemoryConfig is what a Memory is made of. Log is needed; zero values of the rest are the defaults.
type MemoryConfig struct {
	// File is where registrations are kept for the next start, "/var/lib/ashore/runtime.json"; empty: nowhere.
	File string
	// Replica names this control plane to people.
	Replica string
	// Grace is how long a registration counts after its proxy has gone. Zero means 10s, as in Istio.
	Grace time.Duration
	// RestartGrace is how long what was kept counts after a start: until then its proxies have to have connected anew.
	// Zero means 60s.
	RestartGrace time.Duration
	// Log is told of a file that cannot be read or written.
	Log hclog.Logger
}

// Memory is a Runtime for one machine. What it knows survives the process in a small file, which is rewritten soon after
// each change and never waited for.
type Memory struct {
	cfg     MemoryConfig  // set once
	changed chan struct{} // cap 1; written by set, read by Run: something is to be kept
	due     chan struct{} // cap 1; written by expire, read by Run: the next lease ends earlier

	mu       sync.Mutex             // guards the following
	all      Registrations          //
	next     time.Time              // no lease ends before; zero: there is none
	watchers map[chan struct{}]bool // cap 1
}

var _ Runtime = (*Memory)(nil)

// NewMemory makes one that begins with what an earlier one kept. A file that cannot be used is logged, put aside and gone
// without: workloads register anew as they connect. Errors: a Log is missing.
func NewMemory(cfg MemoryConfig) (*Memory, error) {
	if cfg.Log == nil {
		return nil, errors.New("registry: a Memory needs a Log")
	}
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.RestartGrace = cmp.Or(cfg.RestartGrace, time.Minute)
	m := &Memory{cfg: cfg, changed: make(chan struct{}, 1), due: make(chan struct{}, 1), watchers: map[chan struct{}]bool{}}
	lease := time.Now().Add(cfg.RestartGrace)
	for _, r := range m.kept() {
		r.Lease = lease
		m.all = m.all.With(r.RegistrationKey, &r)
		m.next = lease
	}
	return m, nil
}

// Registrations implements Runtime.
func (m *Memory) Registrations() Registrations {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// Watch implements Runtime.
func (m *Memory) Watch(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[c] = true
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, c)
	})
	return c
}

// Connect implements Runtime. It does not wait.
func (m *Memory) Connect(_ context.Context, r Registration) error {
	if err := r.CheckSize(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r.Replica, r.ConnectedAt, r.DisconnectedAt, r.Lease = m.cfg.Replica, now, time.Time{}, time.Time{}
	r.Created, r.Health = now, Report{}
	if old, ok := m.all.Get(r.RegistrationKey); ok && old.Identity == r.Identity {
		r.Created, r.Health = old.Created, old.Health
	}
	m.set(r.RegistrationKey, &r)
	return nil
}

// Report implements Runtime. What was reported before is no change.
func (m *Memory) Report(_ context.Context, key RegistrationKey, session string, h Report) error {
	return m.change(key, session, func(r *Registration) bool {
		if r.Health.Same(h) {
			return false
		}
		r.Health = h
		return true
	})
}

// Disconnect implements Runtime.
func (m *Memory) Disconnect(_ context.Context, key RegistrationKey, session string) error {
	return m.change(key, session, func(r *Registration) bool {
		r.DisconnectedAt = time.Now()
		r.Lease, r.Session = r.DisconnectedAt.Add(m.cfg.Grace), ""
		m.expire(r.Lease)
		return true
	})
}

// Remove implements Runtime.
func (m *Memory) Remove(_ context.Context, key RegistrationKey, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.all.Get(key); !ok || old.Session != session {
		return ErrSession
	}
	m.set(key, nil)
	return nil
}

// change replaces the registration that session speaks for by a copy that f has changed, unless f says that it did not.
func (m *Memory) change(key RegistrationKey, session string, f func(*Registration) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.all.Get(key)
	if !ok || old.Session != session {
		return ErrSession
	}
	if r := *old; f(&r) {
		m.set(key, &r)
	}
	return nil
}

// set puts r in the place of what was known of key and tells everybody; nil: nothing is. mu is held.
func (m *Memory) set(key RegistrationKey, r *Registration) {
	if r == nil {
		m.all = m.all.Without(key)
	} else {
		m.all = m.all.With(key, r)
	}
	leaveWord(m.changed)
	for c := range m.watchers {
		leaveWord(c)
	}
}

// expire sees to it that a lease that ends at end is swept. mu is held.
func (m *Memory) expire(end time.Time) {
	if m.next.IsZero() || end.Before(m.next) {
		m.next = end
		leaveWord(m.due)
	}
}

// leaveWord tells who reads c, unless there is word already.
func leaveWord(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
