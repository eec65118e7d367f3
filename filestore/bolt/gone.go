package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// ErrGone says that the file of an open store is not found by its name any more: nobody would ever read what is written to it.
var ErrGone = errors.New("the file of the store is gone")

// lookEvery is how often Guard looks for the file.
const lookEvery = time.Second

// goneError is ErrGone with what became of the file and what to do.
type goneError struct{ what, todo string }

func (e *goneError) Error() string { return e.what }

// Is makes it an ErrGone.
func (e *goneError) Is(target error) bool { return target == ErrGone }

// Missing says what became of the file when it is not found by its name any more, and what to do; empty while it is there.
// Until it is there again nothing is written: every write has an error that is ErrGone. What was read from it stays in use.
func (s *Store) Missing() string {
	var gone *goneError
	if s.isClosed() || !errors.As(s.present(), &gone) {
		return ""
	}
	return fmt.Sprintf("%s: %s; nothing is written until that is mended: %s", s.path, gone.what, gone.todo)
}

// Guard logs within a second that the file is gone, and that it is back, and looks for the end of what keeps the disk from taking
// anything, until ctx ends.
func (s *Store) Guard(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s.look()
		s.retry()
	}
}

// look notes whether the file is there.
func (s *Store) look() {
	now := s.Missing()
	before := s.missing.Load()
	switch {
	case now == "" && before == nil, before != nil && before.Error == now:
		return
	case now == "":
		s.missing.Store(nil)
		s.cfg.Log.Info("the file of the store is back", "path", s.path)
	case before == nil:
		s.missing.Store(&config.Outage{Error: now, Since: time.Now()})
		s.cfg.Log.Error("the file of the store is gone", "problem", now)
	default:
		s.missing.Store(&config.Outage{Error: now, Since: before.Since})
		s.cfg.Log.Error("the file of the store is gone", "problem", now)
	}
	s.notifyAll()
}

// present returns nil while the open file is the one that is found by its name, or nobody can tell. Errors: a goneError.
func (s *Store) present() error {
	is, err := s.file.Stat()
	if err != nil {
		return nil // it was closed: the write says so
	}
	there, err := os.Stat(s.path)
	if err == nil && os.SameFile(is, there) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.gone(is, err == nil)
}

// gone says what became of the open file; another says that there is one of its name.
func (s *Store) gone(is fs.FileInfo, another bool) *goneError {
	e := &goneError{what: "its file was moved away"}
	back := "move it back"
	open := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd())
	at, err := os.Readlink(open)
	switch raw, ok := is.Sys().(*syscall.Stat_t); {
	case ok && raw.Nlink == 0:
		e.what = "its file was deleted"
		back = fmt.Sprintf("while this process runs \"install -D -m 600 %s %s\" writes down anew what it has, then start ashored again", open, s.path)
	case err == nil && !strings.HasSuffix(at, "(deleted)"):
		e.what += " to " + at
		from, to := at, s.path
		if s.folderGone() && filepath.Base(at) == FileName {
			from, to = filepath.Dir(at), filepath.Dir(to)
		}
		back = fmt.Sprintf("\"mv %s %s\" puts it back", from, to)
	}
	e.what += " while ashored ran"
	switch {
	case another:
		e.what += ", and another file is in its place"
		e.todo = "start ashored again to go by that one, which may lack what was written last, or take it away first: " + back
	case s.folderGone():
		e.what += ", and its folder with it"
		e.todo = back + "; do not start ashored again before all that was in the folder is back, from a backup if need be: it holds the authority's keys too, and without them every workload has to join anew"
	default:
		e.todo = back + "; started without it, ashored begins a new one, and what was in this one is lost"
	}
	return e
}

// folderGone says that there is no state folder any more.
func (s *Store) folderGone() bool {
	_, err := os.Stat(filepath.Dir(s.path))
	return errors.Is(err, fs.ErrNotExist)
}
