package consul

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
)

var (
	// ErrAway means that Consul could not be used, and that nothing was written.
	ErrAway = errors.New("nothing was written")
	// ErrUnknown means that Consul may have done a write: its answer was lost.
	ErrUnknown = errors.New("it is not known whether it was written, see the history")
	// ErrDamaged means that a key in Consul is missing, or is not what Ashore writes.
	ErrDamaged = errors.New("damaged")
)

// Store is the store below a prefix. Safe for concurrent use.
type Store struct {
	cfg    Config  // immutable
	client *client // immutable
	health *health // immutable

	config        *replicatedLog // objects and their history
	identity      *replicatedLog // all other records
	registrations *replicatedLog // registrations, and heartbeats of replicas
}

var _ config.Store = (*Store)(nil)

const (
	// copyPatience is how long Open waits for Consul when there is a copy.
	copyPatience = 2 * time.Second
	// openPause is the time between two tries.
	openPause = 250 * time.Millisecond
)

// Open opens the store. It reads Consul, or this replica's copy if Consul cannot be read. Follow
// keeps the store up to date; call Close at the end. Errors: wrong options; Consul cannot be read
// and there is no copy.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, health: newHealth(cfg.Log)}
	var err error
	if s.client, err = newClient(&s.cfg.Options); err != nil {
		return nil, err
	}
	plain := func(_ record.Key, version string, content []byte) *value {
		return &value{version: version, content: content}
	}
	s.config = s.newLog("config", s.decodeObject)
	s.identity, s.registrations = s.newLog("identity", plain), s.newLog("registrations", plain)
	if err := s.open(ctx); err != nil {
		s.client.transport.CloseIdleConnections()
		return nil, err
	}
	known := s.config.state.Load()
	cfg.Log.Info("store opened", "place", s.Place(), "revision", known.Revision)
	return s, nil
}

func (s *Store) newLog(name string, decode decoder) *replicatedLog {
	l := &replicatedLog{name: name, cfg: &s.cfg, client: s.client, health: s.health, decode: decode,
		copy: newCopy(&s.cfg, name), writing: make(chan struct{}, 1), long: make(chan struct{}, 1),
		reading: make(chan struct{}, 1)}
	l.state.Store(&state{})
	return l
}

func (s *Store) logs() []*replicatedLog {
	return []*replicatedLog{s.config, s.identity, s.registrations}
}

// open reads the logs from Consul, or from the copies.
func (s *Store) open(ctx context.Context) error {
	oldest, patience := s.loadCopies(ctx), s.cfg.Patience
	if !oldest.IsZero() {
		patience = min(patience, copyPatience)
	}
	unreachable := s.await(ctx, patience)
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range s.logs() {
		g.Go(func() error {
			err := unreachable
			if err == nil {
				err = l.reload(ctx)
			}
			if err == nil {
				l.touchCopy()
				return nil
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case oldest.IsZero():
				return fmt.Errorf("%w; this replica has no copy of the store", err)
			}
			s.health.setRead(l.name, err, oldest)
			return nil
		})
	}
	return g.Wait()
}

// loadCopies loads the copies of all logs, and returns the age of the oldest; zero: one is missing.
func (s *Store) loadCopies(ctx context.Context) (oldest time.Time) {
	oldest = time.Now()
	for _, l := range s.logs() {
		asOf, err := l.loadCopy(ctx)
		if err != nil {
			s.cfg.Log.Error("this replica's copy of the store cannot be used", "log", l.name, "error", err)
		}
		if asOf.Before(oldest) {
			oldest = asOf
		}
	}
	return oldest
}

// await waits until Consul answers.
func (s *Store) await(ctx context.Context, patience time.Duration) (last error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := s.client.get(ctx, s.config.keyOfHead())
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the end of ctx tells less than an answer before
			last = err
		}
		if !task.Sleep(ctx, openPause) {
			return last
		}
	}
}

// Follow keeps the store up to date, writes snapshots, and saves the copy, until ctx ends. Call it
// once.
func (s *Store) Follow(ctx context.Context) error {
	saving, endSaving := context.WithCancel(context.WithoutCancel(ctx)) // it saves what is written before the end
	var followers, savers sync.WaitGroup
	defer context.AfterFunc(ctx, func() { s.health.stopping.Store(true) })()
	for _, l := range s.logs() {
		savers.Go(func() { l.copy.Run(saving) }) //nolint:errcheck // it returns none
		followers.Go(func() { l.follow(ctx) })
		followers.Go(func() { l.compact(ctx) })
	}
	followers.Wait()
	endSaving()
	savers.Wait()
	return nil
}

// Close releases connections. Follow has ended, and nobody reads or writes any more.
func (s *Store) Close() error {
	s.client.transport.CloseIdleConnections()
	return nil
}

// Name implements config.Source.
func (s *Store) Name() string { return "store" }

// Place is the prefix, "@" and the address.
func (s *Store) Place() string { return s.cfg.Options.place() }

// Standing is why the store cannot be read, and since when.
func (s *Store) Standing() config.Outage { return s.health.get(&s.health.read) }

// Refused is why Consul refuses writes although the store can be read, as with a token that may
// only read, and since when.
func (s *Store) Refused() config.Outage { return s.health.get(&s.health.write) }

// Revisions returns the newest revision of each log that this replica has, by the log's name.
func (s *Store) Revisions() map[string]uint64 {
	out := map[string]uint64{}
	for _, l := range s.logs() {
		out[l.name] = l.state.Load().Revision
	}
	return out
}

// Empty reports whether no records of identity were ever written.
func (s *Store) Empty() bool { return s.identity.state.Load().Revision == 0 }

// Seed begins an empty store with what another store has, first the objects and then the records. who
// is the author in the history. Objects keep the time of their creation. If the store is not empty,
// nothing is written. Errors: those of Apply and Commit.
func (s *Store) Seed(ctx context.Context, who string, objects []*config.Object, from []record.Record) error {
	changes := make([]config.Change, len(objects))
	for i, o := range objects {
		changes[i] = config.Change{Key: o.Key, Object: o, Revision: config.Absent}
	}
	writes := make([]record.Write, len(from))
	for i, r := range from {
		writes[i] = record.Write{Key: r.Key, Value: r.Value}
	}
	for _, l := range s.logs() {
		if err := l.refresh(ctx); err != nil {
			return err
		}
	}
	if !s.Empty() {
		return nil
	}
	if s.config.state.Load().Revision == 0 { // else a try before has written them
		if _, err := s.Apply(ctx, changes, who); err != nil {
			return err
		}
	}
	return s.Records().Commit(ctx, writes...)
}
