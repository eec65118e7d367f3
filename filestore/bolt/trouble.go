package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config"
)

const (
	// leastProbe and mostProbe are between looks whether the disk takes as much again.
	leastProbe, mostProbe = time.Second, 30 * time.Second
	// maxRoom bounds how much room a look tries to have, in bytes. A write that needs more may fail after it.
	maxRoom = 4 << 20
)

// trouble is why the disk did not take a write, of which smaller ones may know nothing. The zero value: it takes all, as far as is known.
// Safe for concurrent use.
type trouble struct {
	mu sync.Mutex
	// the following are guarded by mu
	now   config.Outage
	most  int64         // the most that a write which failed would have written, in bytes
	need  int64         // the same, maxRoom at most
	bound bool          // the limit of this process stands in the way, which no look can see the end of
	next  time.Time     // when it is looked for again
	pause time.Duration // from that to the look after it
}

// failed notes that the disk did not take a write of a size, and why, as it follows the size in the text, and says whether that is another
// trouble than was known.
func (t *trouble) failed(why string, size int64, bound bool, at time.Time) (began, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began = t.now.Error == ""; began {
		t.now.Since, t.most, t.pause, t.next = at, 0, leastProbe, at.Add(leastProbe)
	}
	t.most = max(t.most, size)
	t.need = min(t.most, maxRoom)
	text := fmt.Sprintf("a write of %d bytes %s; what is there stays active, and smaller writes may succeed", t.most, why)
	changed = t.now.Error != text
	t.now.Error, t.bound = text, bound
	return began, changed
}

// took notes that it took a write of a size. That ends the trouble if it is as large as one that failed: smaller ones find room in the
// file. It returns the trouble that is over, if there was one.
func (t *trouble) took(size int64) (over config.Outage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size >= t.need {
		over, t.now = t.now, config.Outage{}
	}
	return over
}

// due says whether it is time to look whether the disk takes writes again, and how much is looked for.
func (t *trouble) due(now time.Time) (need int64, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.Error == "" || t.bound || now.Before(t.next) {
		return 0, false
	}
	t.pause = min(2*t.pause, mostProbe)
	t.next = now.Add(t.pause)
	return t.need, true
}

func (t *trouble) get() config.Outage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// Refused is why the disk did not take a write, what to do about it, and since when; the zero value: it takes all, as far as is known.
// It is over once a write as large succeeds, or Guard finds that it would; smaller ones may succeed meanwhile. What was read from it
// stays in use.
func (s *Store) Refused() config.Outage { return s.trouble.get() }

// judge notes what came of giving the disk a write of a size.
func (s *Store) judge(err error, size int64) {
	if err == nil {
		if over := s.trouble.took(size); over.Error != "" {
			s.cfg.Log.Info("the store takes writes as large again", "path", s.path, "after", time.Since(over.Since).Round(time.Second))
			s.notifyAll()
		}
		return
	}
	began, changed := s.trouble.failed(s.refusal(err), size, said(err, unix.EFBIG), time.Now())
	if began {
		s.cfg.Log.Error("the store did not take a write: none as large can be written until it does", "path", s.path, "problem", s.Refused().Error)
	}
	if changed {
		s.notifyAll()
	}
}

// refusal is why the disk did not take a write, and what to do.
func (s *Store) refusal(err error) string {
	text := fmt.Sprintf("to %s did not succeed: %v", s.path, err)
	if why, _ := s.inTheWay(err); why != "" {
		text += ": " + why
	}
	return text
}

// notifyAll has who runs look how the store stands.
func (s *Store) notifyAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for f := range s.feeds {
		f.notify()
	}
}

// retry looks whether the disk takes as much again, when it is time for that.
func (s *Store) retry() {
	need, due := s.trouble.due(time.Now())
	if !due {
		return
	}
	err := room(s.path, need)
	if err == nil {
		err = s.touch()
	}
	if err != nil {
		s.cfg.Log.Debug("the store would not take a write as large still", "path", s.path, "error", err)
		return
	}
	s.judge(nil, need)
}

// touch writes the store as it is.
func (s *Store) touch() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.update(func(*tx) error { return nil })
}

// room says whether some bytes more find room beside a file, which is not touched.
func room(path string, bytes int64) error {
	f, err := os.CreateTemp(filepath.Dir(path), FileName+".room-*")
	if err != nil {
		return err
	}
	err = os.Remove(f.Name()) // it has no name from here on: nothing is left behind, however this ends
	for block := make([]byte, 64<<10); err == nil && bytes > 0; bytes -= int64(len(block)) {
		_, err = f.Write(block[:min(bytes, int64(len(block)))])
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// said says that an error is one of the system's. bbolt passes some on as text.
func said(err error, errno unix.Errno) bool {
	return errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error())
}
