package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// syncInterval is how often lines are synced, and how often the disk is tried again.
const syncInterval = time.Second

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
	scrubber     scrubber           // immutable
	events, lost prometheus.Counter // immutable
	stop, ended  chan struct{}      // closed by Close; closed when run has ended

	mu      sync.Mutex
	missing int   // guarded by mu; lost events without a line audit.gap
	file    *file // guarded by mu
	dirty   bool  // guarded by mu; there are lines to sync
}

// Open opens the log, and creates it if there is none.
func Open(c Config) (*Log, error) {
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	l := &Log{
		log: c.Log, scrubber: newScrubber(), stop: make(chan struct{}), ended: make(chan struct{}),
		file: &file{path: c.Path, maxSize: cmp.Or(c.MaxSize, 64<<20), keep: cmp.Or(c.Keep, 8)},
	}
	if err := l.file.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	auto := promauto.With(c.Registerer)
	l.events = auto.NewCounter(prometheus.CounterOpts{Name: "ashore_audit_events_total",
		Help: "Events written to the audit log."})
	l.lost = auto.NewCounter(prometheus.CounterOpts{Name: "ashore_audit_lost_total",
		Help: "Events that could not be written to the audit log; the program's log has them."})
	go l.run()
	return l, nil
}

// Record writes an event. It returns when the line survives the end of the process.
func (l *Log) Record(e Event) {
	e = l.scrubber.clean(e, time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.writeGap()
	if err == nil {
		err = l.write(e)
	}
	if err != nil {
		l.missing++
		l.lost.Inc()
		l.log.Error("audit event not written", "error", err, "path", l.file.path, "time", e.Time, "action", e.Action,
			"actor", e.Actor, "target", e.Target, "outcome", e.Outcome, "reason", e.Reason, "details", e.Details)
	}
}

// Problems returns why events are missing.
func (l *Log) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d events could not be written to %s: the log of ashored has them, and why. "+
		"A line audit.gap counts them once the disk takes it", l.missing, l.file.path)}
}

// Close syncs and closes the file. Call it once. Later events count as lost.
func (l *Log) Close() error {
	close(l.stop)
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.writeGap() // Problems reports what is missing
	if err := errors.Join(l.file.f.Sync(), l.file.f.Close()); err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

// run syncs lines until Close.
func (l *Log) run() {
	defer close(l.ended)
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
			l.sync()
		}
	}
}

// write writes one event. The caller holds mu.
func (l *Log) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	replaced, err := l.file.reopen()
	if replaced {
		l.log.Error("the audit log was moved away or deleted: a new one begins", "path", l.file.path)
	}
	if err != nil {
		return err
	}
	if l.file.full(line) {
		if err := l.file.rotate(); err != nil { // too large a file is better than a lost line
			l.log.Error("the audit log cannot be rotated and grows", "path", l.file.path, "error", err)
		}
	}
	if err := l.file.append(line); err != nil {
		return err
	}
	l.dirty = true
	l.events.Inc()
	return nil
}

// writeGap writes how many events are missing. The caller holds mu.
func (l *Log) writeGap() error {
	if l.missing == 0 {
		return nil
	}
	err := l.write(Event{
		Time: time.Now().UTC(), Action: Gap, Outcome: Failed,
		Reason:  "events could not be written; the log of ashored has them",
		Details: map[string]string{"missing": strconv.Itoa(l.missing)},
	})
	if err == nil {
		l.missing = 0
	}
	return err
}

// sync makes written lines durable.
func (l *Log) sync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.writeGap() // tried again
	if !l.dirty {
		return
	}
	if err := l.file.f.Sync(); err != nil {
		l.log.Error("the audit log cannot be synced", "path", l.file.path, "error", err)
		return
	}
	l.dirty = false
}
