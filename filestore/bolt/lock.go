package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockName is the name of the file that the process using a state folder locks. It holds a
	// state and a process ID. It is never removed: removing a locked file lets a second process in.
	lockName = "ashore.pid"
	// lockTimeout is how long to wait for the former process to end.
	lockTimeout = time.Second
)

// The states have the same length, so that a full disk takes one in place of the other.
const (
	running = "running"
	stopped = "stopped"
)

// lock is a locked state folder.
type lock struct{ f *os.File }

// acquire locks a state folder. unclean means that the process before did not close its store.
func acquire(dir string) (l *lock, unclean bool, err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the state folder: %w", err)
	}
	deadline := time.Now().Add(lockTimeout)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	state, readErr := os.ReadFile(path)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("state folder %s is %w (%s): stop that process, or set another state folder",
			dir, ErrInUse, strings.TrimSpace(string(state)))
		return nil, false, errors.Join(err, f.Close())
	}
	if err := errors.Join(err, readErr); err != nil {
		return nil, false, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &lock{f}, strings.HasPrefix(string(state), running), nil
}

// mark writes a state, which is on the disk when mark returns.
func (l *lock) mark(state string) error {
	text := fmt.Appendf(nil, "%s as process %d\n", state, os.Getpid())
	_, err := l.f.WriteAt(text, 0)
	if err == nil {
		err = l.f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = l.f.Sync()
	}
	return err
}

func (l *lock) release() error { return l.f.Close() }
