package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
)

// FileName is the name of the file in the state folder.
const FileName = "ashore.db"

var (
	// ErrInUse means that another process uses the state folder.
	ErrInUse = errors.New("in use by another process")
	// ErrDamaged means that the file cannot be read, or is not a store; nothing was written to it.
	ErrDamaged = errors.New("damaged, or not a store of Ashore")
	// ErrSchema means that the file has another layout; nothing was written to it.
	ErrSchema = errors.New("written by another release")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// Config configures a Store.
type Config struct {
	// Dir is the state folder; required. New creates it (0700) if it is missing.
	Dir string
	// CheckCommand is the command line that runs Check, without the path. New runs it after an
	// unclean stop. Empty: New does not check the file.
	CheckCommand []string
	// HistoryBytes bounds the size of the history. Default 256 MiB.
	HistoryBytes uint64
	// HistoryAge bounds the age of the history. Default 365 days.
	HistoryAge time.Duration
	// Lost says what is lost with a damaged file without a backup. Default: what a mesh without
	// another store loses.
	Lost string
	// Log receives life cycle events; nil discards them.
	Log hclog.Logger
}

func (c *Config) defaults() {
	if c.HistoryBytes == 0 {
		c.HistoryBytes = 256 << 20
	}
	if c.HistoryAge == 0 {
		c.HistoryAge = 365 * 24 * time.Hour
	}
	if c.Lost == "" {
		c.Lost = "objects written to the store and their history, virtual IPs, the index of workloads " +
			"(it fills again), join tokens and the state of a root rotation are lost, and the last " +
			"known good content of files that are broken now. Revocations are read from ca/revocations.json"
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
}

// Store is an open file. Safe for concurrent use.
type Store struct {
	cfg  Config    // immutable
	path string    // immutable
	lock *lock     // immutable
	db   *bbolt.DB // immutable
	file *os.File  // immutable; the file of db
	recs *records  // immutable

	writing sync.Mutex // held during a write, until the fields below show it

	mu       sync.RWMutex // guards the fields below
	closed   bool
	revision uint64
	objects  map[config.Key]*config.Object
	unusable map[config.Key]string // why stored objects cannot be read
	outage   config.Outage
	feeds    map[*subscriber]bool
}

var _ config.Store = (*Store)(nil)

// New opens the store of a state folder, and creates it if there is none. Close it when done.
// Errors: ErrInUse, ErrDamaged, ErrSchema, and those of the file system, with what to do.
func New(cfg Config) (*Store, error) {
	cfg.defaults()
	if cfg.Dir == "" {
		return nil, errors.New("the state folder is not set")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", cfg.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explain(err)
	}
	l, unclean, err := acquire(dir)
	if err != nil {
		return nil, explain(err)
	}
	s := &Store{
		cfg: cfg, path: filepath.Join(dir, FileName), lock: l, feeds: map[*subscriber]bool{},
		objects: map[config.Key]*config.Object{}, unusable: map[config.Key]string{},
	}
	s.recs = &records{store: s}
	if err := s.open(unclean); err != nil {
		return nil, errors.Join(err, l.release())
	}
	cfg.Log.Info("store opened", "path", s.path, "objects", len(s.objects), "revision", s.revision)
	return s, nil
}

// Close closes the file and releases the state folder. Run returns; later calls return ErrClosed.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.close() {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return errors.Join(fmt.Errorf("close %s: %w", s.path, err), s.lock.release())
	}
	return errors.Join(s.lock.mark(stopped), s.lock.release())
}

// close marks the store as closed and reports whether it was open.
func (s *Store) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasOpen := !s.closed
	s.closed = true
	for f := range s.feeds {
		f.notify()
	}
	return wasOpen
}

func (s *Store) isClosed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closed
}
