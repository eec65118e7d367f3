package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
)

// FileName is the name of the file in the state folder.
const FileName = "ashore.db"

var (
	// ErrInUse says that another process holds the state folder.
	ErrInUse = errors.New("in use by another process")
	// ErrDamaged says that the file cannot be trusted; nothing was written to it.
	ErrDamaged = errors.New("damaged")
	// ErrSchema means that a release with another layout wrote the file; nothing was written to it.
	ErrSchema = errors.New("written by another release")
	// ErrUnchecked says that the file was not closed cleanly and there is no CheckCommand to check it.
	ErrUnchecked = errors.New("not closed cleanly, and not checked")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// Config says where a Store is kept.
type Config struct {
	// Dir is the state folder; required. It is made (0700) when it is missing.
	Dir string
	// CheckCommand is the command line, without the path, that runs Check on the path that is
	// appended to it and exits with 0 when that returns nil; its standard error says why not. New runs
	// it before every opening. Empty: a file that was closed cleanly is opened unchecked, and one
	// that was not is refused with ErrUnchecked.
	CheckCommand []string
	// CheckTimeout is how long a check may take. Default 1m.
	CheckTimeout time.Duration
	// LockTimeout is how long to wait for another process to let go of the folder. Default 1s.
	LockTimeout time.Duration
	// HistoryTotal bounds how many writes of objects are remembered. The latest revision is, however many it has.
	// Default 50000.
	HistoryTotal int
	// Lost says what is lost with a file that is damaged where there is no backup of it. Empty: what is kept for a mesh that has no
	// other store.
	Lost string
	// Log receives life cycle events; nil discards them.
	Log hclog.Logger
}

func (c *Config) defaults() {
	if c.CheckTimeout == 0 {
		c.CheckTimeout = time.Minute
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = time.Second
	}
	if c.HistoryTotal == 0 {
		c.HistoryTotal = 50_000
	}
	if c.Lost == "" {
		c.Lost = "objects written to the store, their history, allocated virtual IPs and the last good content of files that are broken now are lost; other files of configuration are read again. " +
			"Lost with it are the ledger of workloads (each has to join again), join tokens and how far a rotation of the root was; revocations are read from ca/revocations.json beside it, where that is"
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
}

// Store is an open file. Safe for concurrent use.
type Store struct {
	cfg  Config    // set once
	path string    // set once
	lock *lock     // set once
	db   *bbolt.DB // set once
	file *os.File  // that of db; set once
	recs *records  // set once

	trouble trouble                       // with the disk; safe for concurrent use
	missing atomic.Pointer[config.Outage] // what Guard saw last of the file; nil: it is there

	writing sync.Mutex // held by a writer, from reading what it compares with until memory is up to date
	writes  int        // how many writes the history has; guarded by writing

	mu       sync.RWMutex // guards what follows; a writer holds writing too
	closed   bool
	revision uint64
	objects  map[config.Key]*config.Object
	broken   map[string]config.Problem // records of objects that this release cannot read, by Problem.Object
	unread   map[string]config.Key     // their keys, by the same
	feeds    map[*subscriber]bool
}

var _ config.Store = (*Store)(nil)

// New opens the store of a state folder, and makes it when there is none. Close it when done.
// Errors: ErrInUse, ErrDamaged, ErrSchema, ErrUnchecked, and those of the file system; each says what
// to do.
func New(cfg Config) (*Store, error) {
	cfg.defaults()
	if cfg.Dir == "" {
		return nil, errors.New("the state folder is not set: name one")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", cfg.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, remedy(fmt.Errorf("make the state folder: %w", err))
	}
	l, err := acquire(dir, cfg.LockTimeout)
	if err != nil {
		return nil, remedy(err)
	}
	s := &Store{cfg: cfg, path: filepath.Join(dir, FileName), lock: l, feeds: map[*subscriber]bool{}}
	s.recs = newRecords(s)
	if err := s.open(); err != nil {
		return nil, errors.Join(remedy(err), l.release())
	}
	cfg.Log.Info("store opened", "path", s.path, "objects", len(s.objects), "revision", s.revision)
	return s, nil
}

// Close closes the file and lets go of the folder. Run ends; every later call returns ErrClosed.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for f := range s.feeds {
		f.notify()
	}
	s.mu.Unlock()
	if err := s.db.Close(); err != nil {
		// the mark stays: the file is checked before it is opened again
		return errors.Join(fmt.Errorf("close %s: %w", s.path, err), s.lock.release())
	}
	return errors.Join(unmark(s.path), s.lock.release())
}
