package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the name of the file that the process in charge of a state folder locks; it holds the
// process's number. The file itself always stays: removing a locked file lets two in.
const lockName = "ashore.pid"

// lock is a held state folder.
type lock struct{ f *os.File }

// acquire takes the folder for this process, waiting at most for timeout.
func acquire(dir string, timeout time.Duration) (*lock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	deadline := time.Now().Add(timeout)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(inUse(dir, path), f.Close())
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The number is for people alone, so a full disk does not keep the store closed.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &lock{f}, nil
}

// inUse names the process that holds the folder.
func inUse(dir, path string) error {
	holder := "another process"
	if text, err := os.ReadFile(path); err == nil {
		if pid := strings.TrimSpace(string(text)); pid != "" {
			holder = "process " + pid
			if name, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil {
				holder += " (" + strings.TrimSpace(string(name)) + ")"
			}
		}
	}
	return fmt.Errorf("state folder %s is %w: %s has it; stop that one, or set another state folder", dir, ErrInUse, holder)
}

func (l *lock) release() error {
	_ = l.f.Truncate(0)
	return l.f.Close()
}
