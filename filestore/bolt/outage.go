package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config"
)

const (
	watchInterval = time.Second
	// minRoom is how many bytes the disk must take before an outage ends.
	minRoom = 512 << 10
)

// Outage returns why the store cannot be written; zero: it can. Reads continue.
func (s *Store) Outage() config.Outage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outage
}

// Watch notices within a second that the file was moved away, deleted or replaced, and ends an
// outage once the store can be written again. It returns nil when ctx ends.
func (s *Store) Watch(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.look()
		}
	}
}

// look updates the outage.
func (s *Store) look() {
	if s.isClosed() {
		return
	}
	err := s.inPlace()
	if err == nil && s.Outage().Error != "" {
		err = s.probe()
	}
	s.setOutage(err)
}

// setOutage sets the outage; nil ends it. It logs the begin and the end.
func (s *Store) setOutage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.outage
	s.outage = config.Outage{}
	if err != nil {
		s.outage = config.Outage{Error: err.Error(), Since: before.Since}
	}
	switch {
	case err != nil && before.Error == "":
		s.outage.Since = time.Now()
		s.cfg.Log.Error("the store cannot be written", "path", s.path, "error", err)
	case err == nil && before.Error != "":
		s.cfg.Log.Info("the store can be written again", "path", s.path, "after", time.Since(before.Since))
	}
}

// inPlace returns an error unless the open file is the one at its path.
func (s *Store) inPlace() error {
	opened, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	there, err := os.Stat(s.path)
	switch {
	case err == nil && os.SameFile(opened, there):
		return nil
	case err == nil:
		return fmt.Errorf("%s was replaced while ashored ran: restart ashored to use the new file, "+
			"or put the former one back", s.path)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s was moved away or deleted while ashored ran: put it back; "+
			"if ashored is restarted without it, %s", s.path, s.cfg.Lost)
	}
	return explain(err)
}

// probe returns an error unless the disk takes minRoom more bytes.
func (s *Store) probe() error {
	path := filepath.Join(filepath.Dir(s.path), "."+FileName+".probe")
	err := os.WriteFile(path, make([]byte, minRoom), 0o600)
	if removed := os.Remove(path); err == nil {
		err = removed
	}
	if err != nil {
		return explain(fmt.Errorf("write to %s: %w", s.path, err))
	}
	return nil
}

// view runs f in a read transaction.
func (s *Store) view(ctx context.Context, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.db.View(f); err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	return nil
}

// update runs f in a write transaction, which is on the disk when update returns nil. Callers hold
// s.writing. Errors: ErrClosed, those of f, and those of the disk.
func (s *Store) update(f func(*bbolt.Tx) error) error {
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.inPlace(); err != nil {
		s.setOutage(err)
		return fmt.Errorf("%w; nothing was changed", err)
	}
	committing := false
	err := s.db.Update(func(tx *bbolt.Tx) error {
		err := f(tx)
		committing = err == nil
		return err
	})
	if err == nil || !committing {
		return err
	}
	err = explain(fmt.Errorf("write to %s: %w", s.path, err))
	s.setOutage(err)
	return fmt.Errorf("%w; nothing was changed", err)
}

// explain adds to an error of the file system what to do. It returns other errors as they are.
func explain(err error) error {
	for _, e := range []struct {
		errno unix.Errno
		todo  string
	}{
		{unix.ENOSPC, `make room on its disk ("df -h" and "df -i" show how full it is)`},
		{unix.EROFS, "the file system is mounted for reading only: mount it for writing"},
		{unix.EIO, "the disk does not work: see the kernel's log (dmesg)"},
		{unix.EACCES, fmt.Sprintf("this process runs as user %d: make that user the owner of the state folder "+
			`("chown -R"), or set another one`, os.Geteuid())},
	} {
		// bbolt wraps some errors as text only.
		if errors.Is(err, e.errno) || strings.Contains(err.Error(), e.errno.Error()) {
			return fmt.Errorf("%w: %s", err, e.todo)
		}
	}
	return err
}
