package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// open makes the file when it is missing, makes sure that it can be trusted, and loads it.
func (s *Store) open() error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.create(); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("look at the store: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: move it away", s.path)
	default:
		if err := s.trust(info); err != nil {
			return err
		}
	}
	if err := mark(s.path); err != nil {
		return fmt.Errorf("mark the store as open: %w", err)
	}
	if s.db, s.file, err = s.bbolt(s.path); err != nil {
		return err
	}
	err = s.db.View(checkSchema)
	if err == nil {
		err = s.db.View(s.load)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrSchema) { // nothing was written; the file is as it was
		return errors.Join(fmt.Errorf("%s: %w", s.path, err), s.db.Close(), unmark(s.path))
	}
	return errors.Join(s.damaged(err), s.db.Close())
}

// trust returns nil when the file may be opened in this process.
func (s *Store) trust(info fs.FileInfo) error {
	if err := allowed(s.path); err != nil {
		return err
	}
	if err := checkMetas(s.path); err != nil {
		return s.damaged(err)
	}
	unclean, err := marked(s.path)
	if err != nil {
		return err
	}
	switch {
	case len(s.cfg.CheckCommand) > 0:
		start := time.Now()
		if err := s.checkApart(); err != nil {
			return err
		}
		s.cfg.Log.Debug("store checked", "path", s.path, "took", time.Since(start), "closed_cleanly", !unclean)
	case unclean:
		return fmt.Errorf("%s was %w: its process was killed or the machine lost power; start it with ashored, which checks it, or remove %s after a check of your own",
			s.path, ErrUnchecked, markOf(s.path))
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	s.cfg.Log.Warn("store was open to other users, closing it to them", "path", s.path, "mode", info.Mode().Perm())
	if err := os.Chmod(s.path, 0o600); err != nil {
		return fmt.Errorf("close the store to other users: %w", err)
	}
	return nil
}

// allowed returns nil when this process may read and write a file: what it may not read is not damaged.
func allowed(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the store cannot be used: %w", err)
	}
	return f.Close()
}

// create makes an empty store beside its place and then moves it there, so that there is never half a
// file under the store's name.
func (s *Store) create() error {
	// a leftover of a creation that did not come to its end
	fresh := s.path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make the store: %w", err)
	}
	db, _, err := s.bbolt(fresh)
	if err != nil {
		return fmt.Errorf("make the store: %w", err)
	}
	err = db.Update(initialise)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("make the store %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, s.path); err != nil {
		return fmt.Errorf("make the store: %w", err)
	}
	if err := wholefile.SyncFolder(filepath.Dir(s.path)); err != nil {
		return fmt.Errorf("make the store: %w", err)
	}
	s.cfg.Log.Info("store made", "path", s.path)
	return nil
}

// bbolt opens a file, which belongs to the database.
func (s *Store) bbolt(path string) (db *bbolt.DB, f *os.File, err error) {
	open := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err = os.OpenFile(name, flag, mode)
		return f, err
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: s.cfg.LockTimeout, FreelistType: bbolt.FreelistMapType, OpenFile: open})
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, f, nil
}

// damaged is the error for a file that cannot be trusted.
func (s *Store) damaged(why error) error {
	return fmt.Errorf("%s is %w (%w). It was left as it is. Move the file away, put a backup in its place and start ashored again; without a backup it starts with a new file: %s", s.path, ErrDamaged, why, s.cfg.Lost)
}

// markOf is the path of the mark that says that a store is open, or was not closed cleanly.
func markOf(path string) string { return path + ".open" }

// mark sets the mark, on the disk too.
func mark(path string) error {
	f, err := os.OpenFile(markOf(path), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return wholefile.SyncFolder(filepath.Dir(path))
}

func unmark(path string) error {
	if err := os.Remove(markOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// marked says whether the mark is set.
func marked(path string) (bool, error) {
	_, err := os.Stat(markOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
