package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxWait is how long Record waits for the disk.
	maxWait = 100 * time.Millisecond
	// maxQueue is how many events wait for a disk that hangs; more are lost.
	maxQueue = 4096
	// syncInterval is how often lines are synced, and how often the disk is tried again.
	syncInterval = time.Second
)

// Config configures a Log.
type Config struct {
	// Path is the file, in a folder that exists; required.
	Path string
	// MaxSize is the size in bytes at which a new file begins. Default 64 MiB.
	MaxSize int64
	// Keep is how many full files are kept. Default 8.
	Keep int
	// Log receives events that cannot be written; nil discards them.
	Log hclog.Logger
	// Registerer receives the metrics; nil: none.
	Registerer prometheus.Registerer
}

// Log is an open audit log. Safe for concurrent use. Close it when done.
type Log struct {
	log          hclog.Logger       // immutable
	path         string             // immutable
	scrubber     scrubber           // immutable
	events, lost prometheus.Counter // immutable
	queue        chan *entry        // written by Record, read by run
	ended        chan struct{}      // closed when run has ended

	mu      sync.Mutex
	closed  bool // guarded by mu
	missing int  // guarded by mu; lost events without a line audit.gap

	writing   sync.Mutex
	file      *file                   // guarded by writing
	dirty     bool                    // guarded by writing; there are lines to sync
	followers map[chan Event]struct{} // guarded by writing
}

// entry is a queued event.
type entry struct {
	event   Event
	written chan struct{} // closed when it is written or lost
}

// Open opens the log, and creates it if there is none.
func Open(c Config) (*Log, error) {
	if c.MaxSize == 0 {
		c.MaxSize = 64 << 20
	}
	if c.Keep == 0 {
		c.Keep = 8
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	l := &Log{
		log: c.Log, path: c.Path, scrubber: newScrubber(), queue: make(chan *entry,
			maxQueue), ended: make(chan struct{}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashore_audit_events_total", Help: "Events written to the audit log.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashore_audit_lost_total",
			Help: "Events that could not be written to the audit log; the program's log has them.",
		}),
		file:      &file{path: c.Path, maxSize: c.MaxSize, keep: c.Keep},
		followers: map[chan Event]struct{}{},
	}
	if err := l.file.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if c.Registerer != nil {
		if err := errors.Join(c.Registerer.Register(l.events), c.Registerer.Register(l.lost)); err != nil {
			return nil, errors.Join(fmt.Errorf("audit log: %w", err), l.file.f.Close())
		}
	}
	go l.run()
	return l, nil
}

// Record writes an event. It returns when the line survives the end of the process, or after 100
// ms.
func (l *Log) Record(e Event) {
	en := &entry{event: l.scrubber.clean(e, time.Now()), written: make(chan struct{})}
	if err := l.enqueue(en); err != nil {
		l.lose(en.event, err)
		return
	}
	select {
	case <-en.written:
	case <-time.After(maxWait):
	}
}

func (l *Log) enqueue(en *entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	select {
	case l.queue <- en:
		return nil
	default:
		return fmt.Errorf("%d events wait for the disk", maxQueue)
	}
}

// lose writes an event to the program's log instead.
func (l *Log) lose(e Event, why error) {
	l.lost.Inc()
	l.mu.Lock()
	l.missing++
	l.mu.Unlock()
	l.log.Error("audit event not written", "error", why, "path", l.path, "time", e.Time, "action", e.Action,
		"actor", e.Actor, "target", e.Target, "outcome", e.Outcome, "reason", e.Reason, "details", e.Details)
}

// Problems returns why events are missing.
func (l *Log) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d events could not be written to %s: the log of ashored has them, and why. "+
		"A line audit.gap counts them once the disk takes it", l.missing, l.path)}
}

// Close writes what is queued, syncs and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	if !closed {
		close(l.queue)
	}
	l.mu.Unlock()
	<-l.ended
	if closed {
		return nil
	}
	if err := errors.Join(l.file.f.Sync(), l.file.f.Close()); err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

// run writes queued events until Close.
func (l *Log) run() {
	defer close(l.ended)
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		select {
		case en, open := <-l.queue:
			if !open {
				l.writeGap()
				return
			}
			if err := l.write(en.event); err != nil {
				l.lose(en.event, err)
			}
			close(en.written)
		case <-ticker.C:
			l.writeGap()
			l.sync()
		}
	}
}

// write writes one event, after a line about lost ones.
func (l *Log) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if e.Action != Gap {
		l.writeGap()
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	replaced, err := l.file.reopen()
	if replaced {
		l.log.Error("the audit log was moved away or deleted: a new one begins", "path", l.path)
	}
	if err != nil {
		return err
	}
	if l.file.full(line) {
		if err := l.file.rotate(); err != nil { // too large a file is better than a lost line
			l.log.Error("the audit log cannot be rotated and grows", "path", l.path, "error", err)
		}
	}
	if err := l.file.append(line); err != nil {
		return err
	}
	l.dirty = true
	l.events.Inc()
	for c := range l.followers {
		select {
		case c <- e:
		default: // too slow: its Tail ends
			delete(l.followers, c)
			close(c)
		}
	}
	return nil
}

// writeGap writes how many events are missing.
func (l *Log) writeGap() {
	l.mu.Lock()
	missing := l.missing
	l.mu.Unlock()
	if missing == 0 {
		return
	}
	if l.write(Event{
		Time: time.Now().UTC(), Action: Gap, Outcome: Failed,
		Reason:  "events could not be written; the log of ashored has them",
		Details: map[string]string{"missing": strconv.Itoa(missing)},
	}) != nil {
		return // tried again
	}
	l.mu.Lock()
	l.missing -= missing
	l.mu.Unlock()
}

// sync makes written lines durable.
func (l *Log) sync() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if !l.dirty {
		return
	}
	if err := l.file.f.Sync(); err != nil {
		l.log.Error("the audit log cannot be synced", "path", l.path, "error", err)
		return
	}
	l.dirty = false
}
