package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// Config is what a Runtime is made of. Records and Log are needed; zero values of the rest are the defaults.
type Config struct {
	// Records are what the replicas share.
	Records record.Store
	// Replica names this control plane to people.
	Replica string
	// Address is where the others find this control plane: what Answers of theirs is asked about. Empty: nowhere.
	Address string
	// Advertise is where agents find this control plane; the others tell machines that join. Empty: nobody does.
	Advertise []string
	// Member is what the certificate authority calls this control plane; Alive of the others answers by it. May be empty.
	Member string
	// Grace is how long a registration counts after its proxy has gone. Zero means 10s, as in Istio.
	Grace time.Duration
	// LostGrace is how long registrations count after their replica has ended or was lost: until then their proxies have to
	// have connected to another. Zero means 60s.
	LostGrace time.Duration
	// Beat is how often this replica says that it is alive. Zero means 5s. Of who has said nothing for four times as long,
	// while this replica could, it is thought that he is lost.
	Beat time.Duration
	// Answers asks whether a replica still answers at its Address although it writes nothing: it is cut off from the store,
	// not lost, and neither are its workloads. It is called for several at once. Nil: nobody does.
	Answers func(ctx context.Context, address string) bool
	// Log is told of replicas that come and go, and of what goes wrong.
	Log hclog.Logger
}

// Runtime is a registry.Runtime over records that replicas share. Safe for concurrent use.
type Runtime struct {
	cfg Config // set once
	id  string // of this process among all replicas for ever; set once

	advertised atomic.Pointer[[]string] // where agents find the others that are alive

	alive   atomic.Int64                      // how many others count as alive
	members atomic.Pointer[map[string]string] // those of the others that are alive, with who it is of those that have said so since this one began

	said chan struct{} // cap 1; written by speak, read by Run: something is to be written

	mu       sync.Mutex                        // guards the following
	all      registry.Registrations            // what counts: that of shared, and over it what is pending of own
	shared   map[registry.RegistrationKey]kept // as the records were read last
	own      map[registry.RegistrationKey]*word
	unsaid   map[registry.RegistrationKey]*word // those of own that are pending
	watchers map[chan struct{}]bool             // cap 1
	trouble  trouble

	// The following belong to Run, and to New before.
	names    map[string]registry.RegistrationKey // of records of the table
	damaged  map[string]ruin                     // records that cannot be read, by name
	replicas map[string]*replica                 // others, by id
	orphans  map[registry.RegistrationKey]orphan // registrations that end by and by
	unread   tables                              // what is to be read
	mark     record.Mark                         // of registrations as they were read, in a store that tells what has changed
	beats    int                                 // how often this one said that it is alive
	beat     time.Time                           // when it does so next
	touch    time.Time                           // since when the store takes what is written; zero: it does not
}

var _ registry.Runtime = (*Runtime)(nil)

// trouble is why nothing is shared, and since when. The zero value is none.
type trouble struct {
	text  string
	since time.Time
}

// New makes one that begins with what the records have. Errors: something is missing, or the records cannot be read.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Log == nil || cfg.Records == nil {
		return nil, errors.New("registry: a shared runtime needs Records and a Log")
	}
	cfg.Grace, cfg.LostGrace, cfg.Beat = cmp.Or(cfg.Grace, 10*time.Second), cmp.Or(cfg.LostGrace, time.Minute), cmp.Or(cfg.Beat, 5*time.Second)
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	r := &Runtime{cfg: cfg, id: hex.EncodeToString(id), said: make(chan struct{}, 1), shared: map[registry.RegistrationKey]kept{}, own: map[registry.RegistrationKey]*word{},
		unsaid:   map[registry.RegistrationKey]*word{},
		watchers: map[chan struct{}]bool{}, names: map[string]registry.RegistrationKey{}, damaged: map[string]ruin{}, replicas: map[string]*replica{},
		orphans: map[registry.RegistrationKey]orphan{}, unread: tables{registrations: true, replicas: true}}
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	for _, x := range r.replicas {
		x.early = true
	}
	r.advertise()
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
	c := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[c] = true
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, c)
	})
	return c
}

// Advertised are where agents find the other replicas that are alive and not cut off from the store, in the order of their names.
func (r *Runtime) Advertised() []string {
	if list := r.advertised.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// Replicas is how many are alive, with this one, as far as it knows: those that have written since it began, or answer although they do
// not write. Former runs of theirs are none.
func (r *Runtime) Replicas() int { return int(r.alive.Load()) + 1 }

// Alive says whether the other replica of which the Member is m is alive, as far as this one knows.
func (r *Runtime) Alive(m string) bool {
	members := r.members.Load()
	if members == nil {
		return false
	}
	_, found := (*members)[m]
	return found
}

// Twin is another replica that is alive and is called as this one by the certificate authority: both have the same Member. It is
// known when that one has written twice, within two beats, and empty: there is none. What this one has left itself, when it was
// killed and started again, or the store was restored, is none.
func (r *Runtime) Twin() string {
	members := r.members.Load()
	if members == nil {
		return ""
	}
	return (*members)[r.cfg.Member]
}

// Unshared is how many workloads this replica knows something of that the records do not have yet.
func (r *Runtime) Unshared() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unsaid)
}

// advertise finds out who is alive, and who of those is to be told to machines that join: nobody can join at one that is cut off.
func (r *Runtime) advertise() {
	var list []string
	var alive int64
	members, twin := map[string]string{}, r.Twin()
	for id, x := range r.replicas {
		if !r.isAlive(id) {
			continue
		}
		if x.Member != "" {
			members[x.Member] = max(members[x.Member], x.who()) // of several always the same one
		}
		if r.counts(x) {
			alive++
		}
		if !x.cutOff {
			list = append(list, x.Advertise...)
		}
	}
	r.alive.Store(alive)
	r.members.Store(&members)
	if now := r.Twin(); now != "" && now != twin {
		r.cfg.Log.Error("another replica has this one's ID: one of the two has a copy of the other's state folder; \"ashorectl problems\" says what to do", "other", now)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	r.advertised.Store(&list)
}

// Problems are what an operator should see to.
func (r *Runtime) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble.text == "" {
		return nil
	}
	return []string{fmt.Sprintf("registrations and health are not shared with the other replicas since %s: %s; what the proxies of this one say counts here alone until the store is back",
		r.trouble.since.UTC().Format(time.RFC3339), r.trouble.text)}
}

// settle has what counts of a workload be what is known of it, and tells everybody when that is something else. mu is held.
func (r *Runtime) settle(key registry.RegistrationKey) {
	now, before := r.shared[key].registration, r.all
	if w := r.own[key]; w != nil && w.pending {
		now = w.says
	}
	if now == nil {
		r.all = r.all.Without(key)
	} else {
		r.all = r.all.With(key, now)
	}
	if r.all == before {
		return
	}
	for c := range r.watchers {
		leaveWord(c)
	}
}

// leaveWord tells who reads c, unless there is word already.
func leaveWord(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
