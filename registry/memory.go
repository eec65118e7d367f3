package registry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// MemoryConfig configures a Memory.
type MemoryConfig struct {
	// File keeps the registrations across restarts: "/var/lib/ashore/runtime.json". If it is empty,
	// a restart loses them.
	File string
	// Replica is the name of this control plane.
	Replica string
	// Grace is how long a registration lasts after its proxy disconnected. Zero means 10s, as in
	// Istio.
	Grace time.Duration
	// RestartGrace is how long the registrations of File last after the start, unless their proxies
	// connect. Zero means 5m.
	RestartGrace time.Duration
	// Log receives errors of File and registrations that end. Required.
	Log hclog.Logger
}

// Memory is a Runtime for one machine. A file keeps its registrations across restarts. It is
// written at most once a second, and a write that failed is repeated.
type Memory struct {
	cfg     MemoryConfig // immutable
	failing bool         // belongs to Run; the latest save failed

	mu       sync.Mutex // guards the following
	all      Registrations
	watchers map[chan struct{}]bool // capacity 1
}

var _ Runtime = (*Memory)(nil)

// NewMemory returns a Memory with the registrations of its file. It logs and renames a file that
// cannot be read.
func NewMemory(cfg MemoryConfig) (*Memory, error) {
	if cfg.Log == nil {
		return nil, errors.New("registry: a Memory needs a Log")
	}
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.RestartGrace = cmp.Or(cfg.RestartGrace, 5*time.Minute)
	m := &Memory{cfg: cfg, watchers: map[chan struct{}]bool{}}
	lease := time.Now().Add(cfg.RestartGrace)
	for _, r := range m.load() {
		r.LeaseExpiry = lease
		m.all = m.all.With(r.RegistrationKey, &r)
	}
	return m, nil
}

// Run ends registrations that are not renewed, and writes the file, until ctx ends.
func (m *Memory) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var written Registrations
	for {
		select {
		case <-ctx.Done():
			m.save(m.Registrations())
			return nil
		case <-tick.C:
			m.expire(time.Now())
			if all := m.Registrations(); all != written && m.save(all) {
				written = all
			}
		}
	}
}

// expire ends the registrations whose lease has ended.
func (m *Memory) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.all.All() {
		if !r.LeaseExpiry.IsZero() && !r.LeaseExpiry.After(now) {
			m.cfg.Log.Info("registration ended: the proxy did not reconnect",
				"workload", key.Namespace+"/"+key.Name, "group", key.Group)
			m.set(key, nil)
		}
	}
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
	r.Replica, r.ConnectedAt, r.DisconnectedAt, r.LeaseExpiry = m.cfg.Replica, now, time.Time{}, time.Time{}
	r.Created, r.Health = now, Report{}
	if old, ok := m.all.Get(r.RegistrationKey); ok && old.Identity == r.Identity {
		r.Created, r.Health = old.Created, old.Health
	}
	m.set(r.RegistrationKey, &r)
	return nil
}

// Report implements Runtime. A report equal to the last one is no change.
func (m *Memory) Report(_ context.Context, key RegistrationKey, session string, h Report) error {
	return m.change(key, session, func(r Registration) *Registration {
		if r.Health.Same(h) {
			return m.all.At(key)
		}
		r.Health = h
		return &r
	})
}

// Disconnect implements Runtime.
func (m *Memory) Disconnect(_ context.Context, key RegistrationKey, session string) error {
	return m.change(key, session, func(r Registration) *Registration {
		r.DisconnectedAt = time.Now()
		r.LeaseExpiry, r.Session = r.DisconnectedAt.Add(m.cfg.Grace), ""
		return &r
	})
}

// Remove implements Runtime.
func (m *Memory) Remove(_ context.Context, key RegistrationKey, session string) error {
	return m.change(key, session, func(Registration) *Registration { return nil })
}

// change replaces the registration of a session by the result of f. It returns ErrSession if the
// session is not the current one.
func (m *Memory) change(key RegistrationKey, session string, f func(Registration) *Registration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.all.Get(key)
	if !ok || old.Session != session {
		return ErrSession
	}
	m.set(key, f(*old))
	return nil
}

// set replaces a registration, or removes it if r is nil, and wakes the watchers. The caller holds
// mu.
func (m *Memory) set(key RegistrationKey, r *Registration) {
	before := m.all
	if r == nil {
		m.all = m.all.Without(key)
	} else {
		m.all = m.all.With(key, r)
	}
	if m.all == before {
		return
	}
	for c := range m.watchers {
		select {
		case c <- struct{}{}:
		default: // it is awake already
		}
	}
}
