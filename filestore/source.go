package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
)

// Config says what to read and how.
type Config struct {
	// Dir is the folder; required. Folders within it are read too. What is hidden (its name begins
	// with a dot) is not, and only .yaml, .yml and .json files are. It may be a symlink, and
	// symlinks within it are followed.
	Dir string
	// FollowSymlinks has symlinks be followed that lead out of Dir, too. Default false: they are
	// problems.
	FollowSymlinks bool
	// LastGood keeps last good contents, by the names of files; nil: they are forgotten when the process ends.
	LastGood lastgood.Store
	// Rescan is how often the folder is compared with what is known of it, in case a notification
	// was lost. Default 30s; every second while a folder cannot be read, is empty, or holds too
	// many files.
	Rescan time.Duration
	// Settle is how long a file that is written in place, or was deleted, must be left alone before it is read, or
	// gone. Default 50ms.
	Settle time.Duration
	// Return is for how long no more files must have come to a folder that was empty or away, or that lacks
	// files at the start, before those that did not come back count as deleted, and one that was waited for (Await) as read. Though others
	// go on coming that is so when none of those that are missing has come for ten times as long, or since the first files. Default 5s.
	Return time.Duration
	// Await has a folder that cannot be read when the source begins, or holds no file of configuration, and of which nothing was kept,
	// be waited for: the Standing of the source says why, and it is read once there is something in it. Default false: the
	// one is an error of Run, and the other a folder without any object.
	Await bool
	// Log receives each new problem and its end, once; nil discards them.
	Log hclog.Logger
	// OnRead is told of every file that was read, for metrics; may be nil. It must not block, and is
	// called from several goroutines.
	OnRead func(Read)

	maxEntries int // tests have fewer
}

// Read is the reading of one file.
type Read struct {
	File string
	// Took is the time for reading and parsing.
	Took time.Duration
	// Objects and Problems count what was found.
	Objects, Problems int
}

// Source is a folder of files as a config.Source.
type Source struct {
	cfg  Config
	name string
}

var _ config.Source = (*Source)(nil)

// New makes a source; Run reads.
func New(cfg Config) (*Source, error) {
	if cfg.Dir == "" {
		return nil, errors.New("the folder of configuration is not set: name one")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of configuration %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	if cfg.Rescan == 0 {
		cfg.Rescan = 30 * time.Second
	}
	if cfg.Settle == 0 {
		cfg.Settle = 50 * time.Millisecond
	}
	if cfg.Return == 0 {
		cfg.Return = 5 * time.Second
	}
	if cfg.maxEntries == 0 {
		cfg.maxEntries = maxEntries
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.OnRead == nil {
		cfg.OnRead = func(Read) {}
	}
	return &Source{cfg: cfg, name: "file:" + dir}, nil
}

// Name implements config.Source: "file:" and the folder.
func (s *Source) Name() string { return s.name }

// Run implements config.Source. An error says that the folder cannot be read and that nothing is known of
// an earlier content either, and that it is not waited for (Config.Await).
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	w := newWatcher()
	defer w.close()
	k := newKeeper(s.cfg.LastGood, s.name, s.cfg.Log)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.writer.Run(ctx)
	}()
	defer func() { <-ended }()
	defer k.writer.End()
	f := newFolder(s, w, k)
	f.progress = func(left int) bool {
		f.reading = true
		select {
		case <-ctx.Done():
			return false
		case out <- feed.Batch[*config.Object]{Source: s.name, Standing: &feed.Standing{Reading: left}}:
			return true
		}
	}
	if there, err := f.startWhenThere(ctx, out); err != nil || !there {
		return err
	}
	return f.loop(ctx, out)
}

// mountsEvery is how often it is looked whether something was mounted or unmounted.
const mountsEvery = time.Second

// rescanSoon is how often a folder that cannot be read, or holds too many files, is scanned.
const rescanSoon = time.Second

// loop sends what start found, and then waits for changes. Only one of these things can happen at a
// time: a notification, a file has settled, a scan is due, the keeper says how it fares.
func (f *folder) loop(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	scan := time.NewTimer(f.nextScan())
	defer scan.Stop()
	settled := time.NewTimer(time.Hour)
	defer settled.Stop()
	mounts := time.NewTicker(mountsEvery)
	defer mounts.Stop()
	full, due := true, true // due: something has to be looked at each second
	for {
		if due || len(f.changedGroups)+len(f.keep.staged) > 0 {
			if !f.send(ctx, out, full) {
				return nil
			}
			full, due = false, false
		}
		settled.Reset(f.pending.wait(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.watch.events():
			f.event(e)
			f.events()
		case err := <-f.watch.errors():
			// notifications were lost
			f.src.cfg.Log.Debug("scanning after a lost notification", "folder", f.src.cfg.Dir, "error", err)
			f.scanNow = true
		case <-settled.C:
			f.settled()
		case <-mounts.C:
			due = true
			f.scanNow = f.scanNow || f.watch.replaced()
		case <-scan.C:
			f.rescan()
			scan.Reset(f.nextScan())
		case err := <-f.keep.writer.Status():
			f.keeping(err)
		}
		if f.scanNow {
			f.scanNow = false
			f.rescan()
			scan.Reset(f.nextScan())
		}
	}
}

// send sends what has changed since the last batch, if anything; full says that this is the first
// one. False: ctx ended.
func (f *folder) send(ctx context.Context, out chan<- feed.Batch[*config.Object], full bool) bool {
	if ctx.Err() != nil {
		return false // not all may have been read
	}
	batch, ok := f.batch(full)
	if !ok && !f.reading {
		return true
	}
	if full {
		batch.Standing = f.stands()
	}
	if f.reading && batch.Standing == nil {
		batch.Standing = &feed.Standing{}
	}
	f.reading = false
	select {
	case <-ctx.Done():
		return false
	case out <- batch:
		return true
	}
}

// events acts on the notifications that have come meanwhile, and reads what they name at once: a
// checkout of thousands of files makes a few batches.
func (f *folder) events() {
	for range eventBuffer {
		select {
		case e := <-f.watch.events():
			f.event(e)
			continue
		default:
		}
		break
	}
	f.readAll(f.ready.take())
}

// nextScan is the time until the next scan. Scans take a tenth of the time at most.
func (f *folder) nextScan() time.Duration {
	next := f.src.cfg.Rescan
	if f.retrySoon || f.absence.is() {
		next = min(rescanSoon, next)
	}
	return max(next, 9*f.scanTook)
}
