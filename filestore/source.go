package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Config says which folder is read.
type Config struct {
	// Name identifies the source, also when it reads another folder after a restart: then the rules
	// of package feed apply to what that folder lacks. Default: the path of Dir.
	Name string
	// Dir is the folder; required. Files with the extensions .yaml, .yml and .json in it, and in
	// the folders below, are read. Names that begin with a dot are not. Dir may be a symlink.
	// Symlinks that end within it are followed; others are problems.
	Dir string
	// Log receives lost notifications, for debugging, and a warning when the kernel reports no
	// changes. Nil discards them.
	Log hclog.Logger

	maxEntries int // tests set fewer
}

// Source is a folder of files. It implements config.Source.
type Source struct {
	cfg  Config
	name string
}

var _ config.Source = (*Source)(nil)

const (
	// quiet is how long the folder must not change before it is read, so that files which are
	// written together are read together. Changes delay reading at most for maxDelay.
	quiet, maxDelay = 10 * time.Millisecond, 500 * time.Millisecond
	// rescanInterval is how often the folder is scanned for changes that the kernel does not
	// report, such as a mount. It is longer for a large folder: a scan is followed by rescanPause
	// times its duration without one.
	rescanInterval, rescanPause = 5 * time.Second, 100
)

// New returns a source; Run reads.
func New(cfg Config) (*Source, error) {
	if cfg.Dir == "" {
		return nil, errors.New("the folder of configuration is not set: name one")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of configuration %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	if cfg.maxEntries == 0 {
		cfg.maxEntries = maxEntries
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	return &Source{cfg: cfg, name: cmp.Or(cfg.Name, dir)}, nil
}

// Name implements config.Source.
func (s *Source) Name() string { return s.name }

// Check returns why the folder cannot be read now; nil: it can.
func (s *Source) Check() error {
	if err := s.scan().failed["."]; err != nil {
		return &downError{s.cfg.Dir, err}
	}
	return nil
}

func (s *Source) scan() *listing { return scan(s.cfg.Dir, s.cfg.maxEntries) }

// Run implements config.Source.
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	w := newWatcher()
	defer w.close()
	f := newFolder(s, w, func(b feed.Batch[*config.Object]) bool {
		select {
		case out <- b:
			return true
		case <-ctx.Done():
			return false
		}
	})
	var (
		first   time.Time       // when the first change was noticed that is not read yet
		changed map[string]bool // paths that changed since; nil: all may have changed
	)
	for {
		f.read(first, changed)
		first, changed = time.Time{}, nil
		next := time.NewTimer(f.untilScan())
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				next.Stop()
				return nil
			case e := <-w.events():
				if !w.concerns(e) {
					continue
				}
				if first.IsZero() {
					changed = map[string]bool{}
				}
				if changed != nil {
					changed[e.Name] = true
				}
			case err := <-w.errors():
				changed = nil
				s.cfg.Log.Debug("a notification was lost", "folder", s.cfg.Dir, "error", err)
			case <-next.C:
				waiting = false
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			next.Reset(max(0, min(quiet, time.Until(first.Add(maxDelay)))))
		}
	}
}
