package consul

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/writebehind"
)

var (
	// ErrAway says that Consul could not be asked. Nothing was written.
	ErrAway = errors.New("nothing was written")
	// ErrUnknown says that nobody knows whether a write was done: Consul may have received it, and
	// does not answer.
	ErrUnknown = errors.New("nobody knows whether it was written")
	// ErrUnread says that this replica has not read what is asked for since it was started, and
	// that its copy does not have it either.
	ErrUnread = errors.New("not read since the start")
	// ErrDamaged says that what stands in Consul is none of what Ashore writes, or that something
	// is missing there.
	ErrDamaged = errors.New("damaged")
)

const (
	keyHead   = "head"
	tipFolder = "tip/"
)

func keyOfEntry(sequence uint64) string      { return fmt.Sprintf("entry/%016d", sequence) }
func keyOfChunk(chunks string, n int) string { return fmt.Sprintf("chunk/%s/%04d", chunks, n) }
func keyOfMark(chunks string) string         { return "chunk/" + chunks + "/mark" }
func keyOfTip(entry string) string           { return tipFolder + entry }

// sequenceOf is of which entry a snapshot is, 0 for none.
func sequenceOf(r *snapshotRef) uint64 {
	if r == nil {
		return 0
	}
	return r.Sequence
}

// Store is a log in Consul, read. Safe for concurrent use.
type Store struct {
	cfg      Config              // set once
	client   *client             // set once
	applying keeping             // set once
	copy     *writebehind.Writer // set once
	recs     *records            // set once
	watchers record.Watchers

	state     atomic.Pointer[state] // what is known; only who has the turn changes it
	following atomic.Bool           // Follow runs
	leaving   atomic.Bool           // Follow has been told to end

	turn chan struct{} // cap 1; held by who moves the state, from reading the log to publishing
	// The following belong to who has the turn.
	begun    bool              // Open is over
	head     head              // the newest that is known
	headAt   uint64            // the index of its key; 0: there is no head
	tipAt    uint64            // the index of the head whose tip was seen to be there; 0: of none
	inLog    loggedSize        // what stands in the log since the snapshot
	applied  map[string]bool   // the IDs of entries that were read since a write began; nil: nobody writes
	revision uint64            // the highest ever known
	chunked  map[uint64]string // chunks of entries since the snapshot, by their sequence
	uncopied map[string][]byte // what the copy has of objects, until that is loaded or written anew; nil: it is

	counts   counts
	queue    writeQueue
	asking   barrier
	standing standing
	compact  chan struct{} // cap 1; wakes who writes snapshots

	mu    sync.Mutex
	feeds map[*subscriber]bool // guarded by mu
}

// counts are what Counts tells.
type counts struct{ written, lost, unknown atomic.Uint64 }

// Counts tells what this replica has done since it was started.
type Counts struct {
	// Sequence is the number of the newest entry of the log that it knows.
	Sequence uint64
	// Written are the entries that it wrote, Lost how often another replica was faster, Unknown how
	// many writes there were of which nobody knows whether they were done.
	Written, Lost, Unknown uint64
}

// Counts tells what this replica has done since it was started.
func (s *Store) Counts() Counts {
	return Counts{Sequence: s.state.Load().Sequence, Written: s.counts.written.Load(), Lost: s.counts.lost.Load(),
		Unknown: s.counts.unknown.Load()}
}

// loggedSize is how much stands in the log.
type loggedSize struct {
	entries, bytes int
	// snapshot is how many bytes the snapshot has.
	snapshot int
}

var _ config.Store = (*Store)(nil)

const (
	// hurried is how long Open tries to ask Consul at most where a copy can stand in.
	hurried = 2 * time.Second
	// attemptPause is from an attempt that failed to the next one.
	attemptPause = 250 * time.Millisecond
)

// Open makes a store of what Consul holds; where Consul does not answer, of the copy of this
// replica. The log is begun by the first write. Follow keeps it up to date, and Close is called in
// the end. Errors: the options; Consul does not answer, or holds what cannot be read, and there is
// no copy.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	c, err := newClient(&cfg.Options)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, client: c, turn: make(chan struct{}, 1), compact: make(chan struct{}, 1),
		feeds: map[*subscriber]bool{}, chunked: map[uint64]string{}}
	s.applying = keeping{source: s.Name(), most: cfg.HistoryTotal, bytes: cfg.HistoryBytes}
	s.copy = newCopy(cfg)
	s.recs = &records{store: s}
	kept, found, err := s.loadCopy(ctx)
	if err != nil {
		cfg.Log.Error("this replica's copy of what is in Consul cannot be used", "error", err)
	}
	s.state.Store(kept)
	s.revision = kept.revision
	if err := s.begin(ctx, found); err != nil {
		c.transport.CloseIdleConnections()
		return nil, err
	}
	return s, nil
}

// begin reads Consul for the first time. found says that there is a copy.
func (s *Store) begin(ctx context.Context, found bool) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	defer func() { s.begun = true; <-s.turn }()
	wait := s.cfg.Patience
	if found {
		wait = min(wait, hurried)
	}
	for end := time.Now().Add(wait); ; {
		err := s.firstRead(ctx, wait)
		// all is known, and nothing can be written
		if err == nil || errors.Is(err, errTipless) && s.head.position == s.state.Load().position {
			break
		}
		if time.Now().Before(end) && !errors.Is(err, ErrDamaged) && !errors.Is(err, errFormat) &&
			sleep(ctx, attemptPause) == nil {
			continue
		}
		if !found {
			return fmt.Errorf("%w; this replica has never read it, so nothing stands in", err)
		}
		if most := s.cfg.Options.MaxAge; most > 0 && time.Since(s.standing.since()) > most {
			return fmt.Errorf("%w; what this replica knew is of %s, and the setting store.maxAge (%s) does not let it stand in", err, s.standing.since().UTC().Format(time.RFC3339), most)
		}
		s.loadCopiedObjects()
		s.cfg.Log.Error("what this replica knew stands in for what Consul holds", "store", s.Name(),
			"as_of", s.standing.since(), "records", s.state.Load().records.Len(), "objects", s.state.Load().objects.Len())
		return nil
	}
	known := s.state.Load()
	s.cfg.Log.Info("store opened", "store", s.Name(), "objects", known.objects.Len(), "records", known.records.Len(),
		"revision", known.revision)
	return nil
}

// firstRead reads Consul if it answers in time; then what it holds may take longer.
func (s *Store) firstRead(ctx context.Context, wait time.Duration) error {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := s.client.head(short, 0, 0); err != nil {
		err = s.client.explain(err)
		s.note(ctx, err)
		return err
	}
	return s.refresh(ctx)
}

// Name implements config.Source: "store:consul:" and the prefix; behind an "@" what else is set of
// where it is.
func (s *Store) Name() string { return "store:consul:" + s.cfg.Options.place() }

// Log is the ID of the log that the store is: one of its own for each that was ever begun, equal
// for all that share it.
func (s *Store) Log() string { return s.state.Load().Log }

// Close lets go of Consul. Follow has ended, and nobody reads or writes any more.
func (s *Store) Close() error {
	s.asking.looks.Wait()
	s.client.transport.CloseIdleConnections()
	return nil
}

// await takes the turn.
func (s *Store) await(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publish makes next what is known, and tells of what differs. Its caller has the turn.
func (s *Store) publish(next *state) {
	old := s.state.Load()
	generation := old.generation
	if next.generation != generation {
		next = next.sharing(old)
	}
	s.state.Store(next)
	s.revision = max(s.revision, next.revision)
	s.keepCopy(old, next)
	var told []record.Write
	for c := range next.records.Diff(old.records) {
		told = append(told, record.Write{Key: record.Key(c.Key)})
	}
	s.watchers.Tell(told)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.feeds) == 0 {
		return
	}
	var changed []config.Key
	for c := range next.objects.Diff(old.objects) {
		changed = append(changed, c.Key)
	}
	for f := range s.feeds {
		f.add(changed, next.generation != generation)
	}
}
