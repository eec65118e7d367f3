package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
)

// Config configures a Runtime. Records and Log are required.
type Config struct {
	// Records store the registrations.
	Records record.Store
	// SingleReplica means that no other replica uses Records. This one then writes no heartbeats.
	SingleReplica bool
	// Replica is the name of this replica, for operators.
	Replica string
	// Advertise lists where agents connect to this replica. The other replicas send it to machines
	// that join.
	Advertise []string
	// Address is where other replicas connect to this one; see Others. May be empty.
	Address string
	// Grace is how long a registration lasts after its proxy disconnected. Zero means 10s, as in
	// Istio.
	Grace time.Duration
	// RestartGrace is how long the registrations of a replica last after it stopped or was lost. If
	// this replica is alone, it is how long those from before the start last.
	// Zero means 5m.
	RestartGrace time.Duration
	// Heartbeat is how often this replica writes its record. Zero means 5s. A replica that missed
	// four heartbeats is lost.
	Heartbeat time.Duration
	// Log receives replicas that start and stop, and failures.
	Log hclog.Logger
}

// Runtime is a registry.Runtime over records that replicas share. Safe for concurrent use.
type Runtime struct {
	cfg Config // immutable
	id  string // immutable; of this process, unique

	work     chan struct{}    // capacity 1; receives when pending is not empty
	watchers task.Broadcaster // of all

	mu       sync.Mutex // guards the following
	all      registry.Registrations
	saved    map[string]saved    // the latest records, by name
	local    map[string]local    // what streams of this replica last sent, by name of the record
	pending  map[string]struct{} // names in local that must be written
	expiring map[string]expiry   // records that will be deleted, by name
	replicas map[string]*replica // the other replicas, by ID
	failure  failure

	// The following belong to Run, and to New before it.
	revision      record.Mark // of the registrations that were read
	available     bool        // the latest write succeeded
	count         int         // heartbeats written
	nextHeartbeat time.Time
}

var _ registry.Runtime = (*Runtime)(nil)

// saved is a record of a registration.
type saved struct {
	key registry.RegistrationKey
	// registration is the latest version that could be read. Nil if there is none.
	registration *registry.Registration
	owner        string // the ID of the replica that wrote it
	value        []byte
	version      string
}

// local is what a stream of this replica last sent.
type local struct {
	key     registry.RegistrationKey
	session string
	// registration is nil if it is to be removed.
	registration *registry.Registration
	value        []byte // the record; nil if it is to be deleted
	// connected and owner order the sessions of the workload.
	connected time.Time
	owner     string
}

// live reports whether the stream is connected.
func (l *local) live() bool { return l.registration != nil && l.registration.DisconnectedAt.IsZero() }

// New returns a Runtime with the registrations of the records. Call its Run.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Log == nil || cfg.Records == nil {
		return nil, errors.New("registry: a runtime needs Records and a Log")
	}
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.RestartGrace = cmp.Or(cfg.RestartGrace, 5*time.Minute)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 5*time.Second)
	r := &Runtime{
		cfg:      cfg,
		id:       rand.Text(),
		work:     make(chan struct{}, 1),
		saved:    map[string]saved{},
		local:    map[string]local{},
		pending:  map[string]struct{}{},
		expiring: map[string]expiry{},
		replicas: map[string]*replica{},
	}
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	for _, x := range r.replicas {
		x.beats = 0 // a killed replica may have left the record
	}
	return r, nil
}

// Registrations implements registry.Runtime.
func (r *Runtime) Registrations() registry.Registrations {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Watch implements registry.Runtime.
func (r *Runtime) Watch(ctx context.Context) <-chan struct{} {
	return r.watchers.Watch(ctx)
}

// Connect implements registry.Runtime. It does not wait for the store.
func (r *Runtime) Connect(_ context.Context, reg registry.Registration) error {
	if err := reg.CheckSize(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.all.At(reg.RegistrationKey)
	now := time.Now().UTC().Round(0)
	if old != nil && !now.After(old.ConnectedAt) { // that replica's clock is ahead
		now = old.ConnectedAt.Add(time.Microsecond)
	}
	reg.Replica, reg.ConnectedAt, reg.DisconnectedAt, reg.LeaseExpiry = r.cfg.Replica, now, time.Time{}, time.Time{}
	reg.Created, reg.Health = now, registry.Report{}
	if old != nil && old.Identity == reg.Identity {
		reg.Created, reg.Health = old.Created, old.Health
	}
	l := local{key: reg.RegistrationKey, session: reg.Session, connected: now, owner: r.id}
	return r.setLocal(l, &reg)
}

// Report implements registry.Runtime. A report equal to the last one is no change.
func (r *Runtime) Report(_ context.Context, key registry.RegistrationKey, session string, h registry.Report) error {
	return r.change(key, session, func(reg registry.Registration) *registry.Registration {
		if !reg.Health.Same(h) {
			h.At = h.At.UTC().Round(0)
			reg.Health = h
		}
		return &reg
	})
}

// Disconnect implements registry.Runtime.
func (r *Runtime) Disconnect(_ context.Context, key registry.RegistrationKey, session string) error {
	return r.change(key, session, func(reg registry.Registration) *registry.Registration {
		reg.DisconnectedAt, reg.Session = time.Now().UTC().Round(0), ""
		return &reg
	})
}

// Remove implements registry.Runtime.
func (r *Runtime) Remove(_ context.Context, key registry.RegistrationKey, session string) error {
	return r.change(key, session, func(registry.Registration) *registry.Registration { return nil })
}

// change replaces the registration of a session by the result of f, or removes it if that is nil.
// It also changes a session that is connected but not active, and then returns ErrSession.
func (r *Runtime) change(key registry.RegistrationKey, session string,
	f func(registry.Registration) *registry.Registration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.all.At(key)
	active := current != nil && current.Session == session
	l, ok := r.local[recordName(key)]
	switch {
	case ok && l.live() && l.session == session:
		if err := r.setLocal(l, f(*l.registration)); err != nil {
			return err
		}
	case active:
		owner := r.saved[recordName(key)].owner
		l = local{key: key, connected: current.ConnectedAt, owner: cmp.Or(owner, r.id)}
		return r.setLocal(l, f(*current))
	}
	if !active {
		return registry.ErrSession
	}
	return nil
}

// setLocal stores what a stream sent. The caller holds mu.
func (r *Runtime) setLocal(l local, reg *registry.Registration) (err error) {
	l.registration, l.value = reg, nil
	if reg != nil {
		if l.value, err = encode(reg, r.id); err != nil {
			return fmt.Errorf("workload %s/%s: %w", l.key.Namespace, l.key.Name, err)
		}
	}
	name := recordName(l.key)
	r.local[name] = l
	r.settle(name, l.key)
	return nil
}

// settle selects the active registration of a workload, after a change of its record, of a stream,
// or of a replica. The caller holds mu.
func (r *Runtime) settle(name string, key registry.RegistrationKey) {
	s, hasRecord := r.saved[name]
	l, hasLocal := r.local[name]
	if hasLocal {
		key = l.key
	}
	delete(r.pending, name)
	current := s.registration
	switch {
	case !hasLocal:
	case hasRecord == (l.value != nil) && string(l.value) == string(s.value): // it is written
		if hasRecord {
			s.registration = l.registration // the pointer is the version
			r.saved[name] = s
		}
		current = l.registration
		if !l.live() {
			delete(r.local, name)
		}
	case r.replaces(&l, &s):
		current = l.registration
		r.pending[name] = struct{}{}
		task.Poke(r.work)
	case !l.live():
		delete(r.local, name)
	}
	r.setExpiry(name)
	before := r.all
	if current == nil {
		r.all = r.all.Without(key)
	} else {
		r.all = r.all.With(key, current)
	}
	if r.all != before {
		r.watchers.Notify()
	}
}

// replaces reports whether the session of this replica replaces the record: it connected last, or
// it is the only one that is connected. The caller holds mu.
func (r *Runtime) replaces(l *local, s *saved) bool {
	if s.registration == nil {
		return true
	}
	order := cmp.Or(l.connected.Compare(s.registration.ConnectedAt), cmp.Compare(l.owner, s.owner))
	return order >= 0 || l.live() && !r.connected(s)
}

// connected reports whether the session of a record is connected, as far as this replica knows. The
// caller holds mu.
func (r *Runtime) connected(s *saved) bool {
	if !s.registration.DisconnectedAt.IsZero() {
		return false
	}
	if s.owner != r.id {
		return r.alive(s.owner)
	}
	// The store may have been restored to a state that has a session from before.
	l, ok := r.local[recordName(s.key)]
	return ok && l.session == s.registration.Session
}
