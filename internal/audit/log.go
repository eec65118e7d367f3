package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// patience is how long Record waits for the disk.
	patience = 100 * time.Millisecond
	// maxQueue is how many events wait for a disk that hangs; more are not written.
	maxQueue = 4096
	// syncTime is how long a line may take from the kernel to the disk.
	syncTime = time.Second
)

// Config says where a Log is kept.
type Config struct {
	// Path is the file; required. Its folder is made (0700) when it is missing.
	Path string
	// MaxSize is the size in bytes at which the file is renamed and a new one begun. Default 64 MiB.
	MaxSize int64
	// Keep is how many renamed files are kept. Default 8.
	Keep int
	// Log is told what could not be written; nil discards that.
	Log hclog.Logger
	// Registerer takes the metrics; nil: none.
	Registerer prometheus.Registerer
}

// Log is an open audit log. Safe for concurrent use. Close it when done. Before Run runs and after it has ended there is
// nobody to hold up, and Record itself writes.
type Log struct {
	log      hclog.Logger       // set once
	events   prometheus.Counter // set once
	lost     prometheus.Counter // set once
	wake     chan struct{}      // cap 1; written by Record, read by Run
	now      func() time.Time   // set once
	path     string             // set once
	watchers watchers           // those who follow; safe for concurrent use

	mu      sync.Mutex
	queue   []*entry // guarded by mu
	running bool     // guarded by mu: Run takes what is queued
	stuck   bool     // guarded by mu: the disk took longer than patience, nobody waits for it
	closed  bool     // guarded by mu
	missing int      // guarded by mu: events that were not written, and no line says so yet

	writing sync.Mutex // held by who writes to the file
	file    *file      // set once; what it says belongs to who writes is guarded by writing
	dirty   bool       // guarded by writing: there is something to sync
	begun   string     // guarded by writing: why the file began anew, and no line says so yet
}

// entry is an event on its way.
type entry struct {
	event Event
	line  []byte
	done  chan struct{} // closed when it is written, or cannot be
}

// Open opens the log, made when missing. Errors are those of the file system, with the path.
func Open(c Config) (*Log, error) {
	if c.Path == "" {
		return nil, errors.New("the audit log has no path: name one")
	}
	if c.MaxSize == 0 {
		c.MaxSize = 64 << 20
	}
	if c.Keep == 0 {
		c.Keep = 8
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, fmt.Errorf("audit log %s: %w", c.Path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("audit log: make its folder: %w", err)
	}
	l := &Log{
		log: c.Log, wake: make(chan struct{}, 1), now: time.Now, path: path,
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "ashore_audit_events_total", Help: "Events written to the audit log."}),
		lost:   prometheus.NewCounter(prometheus.CounterOpts{Name: "ashore_audit_lost_total", Help: "Events that could not be written to the audit log; the program's log has them."}),
		file:   &file{path: path, maxSize: c.MaxSize, keep: c.Keep, log: c.Log, names: &sync.Mutex{}},
	}
	if err := l.file.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if c.Registerer != nil {
		if err := errors.Join(c.Registerer.Register(l.events), c.Registerer.Register(l.lost)); err != nil {
			return nil, errors.Join(fmt.Errorf("audit log: %w", err), l.file.f.Close())
		}
	}
	return l, nil
}

// Record writes an event. It returns when the line will survive the end of the process, or after 100 ms.
func (l *Log) Record(e Event) {
	en, wait := l.enqueue(e.clean(l.now()))
	if en == nil {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
	if !wait {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-en.done:
	case <-timer.C:
		l.giveUp()
	}
}

// giveUp lets nobody wait for the disk any more until it answers.
func (l *Log) giveUp() {
	l.mu.Lock()
	first := !l.stuck
	l.stuck = true
	l.mu.Unlock()
	if first {
		l.log.Warn("the disk of the audit log does not answer: events wait in memory", "path", l.path)
	}
}

// enqueue puts an event into the queue and says whether to wait for it; nil when it is written, or cannot be.
func (l *Log) enqueue(e Event) (en *entry, wait bool) {
	line, err := json.Marshal(e)
	if err != nil { // a time beyond the year 9999
		l.lose(e, err)
		return nil, false
	}
	en = &entry{event: e, line: append(line, '\n'), done: make(chan struct{})}
	l.mu.Lock()
	full, closed := len(l.queue) >= maxQueue, l.closed
	if !full && !closed {
		l.queue = append(l.queue, en)
	}
	running := l.running
	wait = running && !l.stuck
	l.mu.Unlock()
	switch {
	case closed:
		l.lose(e, os.ErrClosed)
		return nil, false
	case full:
		l.lose(e, fmt.Errorf("%d events wait for the disk already", maxQueue))
		return nil, false
	case !running:
		l.drain()
		return nil, false
	}
	return en, wait
}

// lose tells of an event that is not written. The program's log has it then.
func (l *Log) lose(e Event, why error) {
	l.lost.Inc()
	l.mu.Lock()
	l.missing++
	l.mu.Unlock()
	l.log.Error("audit event not written", "error", why, "path", l.path, "time", e.Time, "action", e.Action, "actor", e.Actor, "target", e.Target,
		"outcome", e.Outcome, "reason", e.Reason, "details", e.Details)
}

// Run writes what is recorded until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	l.setRunning(true)
	defer l.setRunning(false)
	ticker := time.NewTicker(syncTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.drain()
			return nil
		case <-l.wake:
			l.drain()
		case <-ticker.C:
			l.drain() // for what is missing: the disk may have room by now
			l.sync()
		}
	}
}

func (l *Log) setRunning(running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = running
}

// Close writes what waits, also the line about what is missing, syncs and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.drain()
	l.drain() // a disk without room for all may have some for the line that says so
	l.untold()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.dirty = false
	if err := errors.Join(l.file.f.Sync(), l.file.f.Close()); err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

// drain writes what is queued, in one go.
func (l *Log) drain() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	queue, missing := l.queue, l.missing
	l.queue = nil
	l.mu.Unlock()
	err := l.find()
	if len(queue) == 0 {
		if err == nil {
			l.own(missing)
		}
		return
	}
	if err == nil {
		err = l.file.append(l.lines(queue, missing))
		l.dirty = true
	}
	l.mu.Lock()
	l.stuck = false
	if err == nil {
		l.missing -= missing
	}
	l.mu.Unlock()
	if err == nil {
		l.begun = ""
	}
	for _, en := range queue {
		if err != nil {
			l.lose(en.event, err)
		}
		close(en.done)
	}
	if err == nil {
		l.events.Add(float64(len(queue)))
		l.watchers.tell()
	}
}

// find sees to it that what is written next can be found. writing is held.
func (l *Log) find() error {
	about, err := l.file.found()
	if about != "" {
		l.begun = about
	}
	return err
}

// own writes the lines about events that are missing, and about a file that began anew, without waiting for another event: that may never come. The file is not
// renamed for it: a disk that has no room for a new one would be tried every second, and each try may cost the oldest file.
// What cannot be written is tried again. writing is held.
func (l *Log) own(missing int) {
	if missing == 0 && l.begun == "" || l.file.grow(l.lines(nil, missing)) != nil {
		return
	}
	l.dirty, l.begun = true, ""
	l.mu.Lock()
	l.missing -= missing
	l.mu.Unlock()
	l.watchers.tell()
}

// untold logs that events are missing of which no line says so.
func (l *Log) untold() {
	l.mu.Lock()
	missing := l.missing
	l.mu.Unlock()
	if missing > 0 {
		l.log.Error("the audit log was closed before it could say that events are missing in it", "path", l.path, "missing", missing)
	}
}

// lines are those of a queue, after those about what is missing before it. writing is held.
func (l *Log) lines(queue []*entry, missing int) []byte {
	var b bytes.Buffer
	gap := func(e Event) {
		e.Action, e.Outcome = Gap, Failed
		if line, err := json.Marshal(e.clean(l.now())); err == nil { // always
			b.Write(append(line, '\n'))
		}
	}
	if l.begun != "" {
		gap(Event{Reason: l.begun})
	}
	if missing > 0 {
		gap(Event{Reason: "events could not be written; the log of ashored has them", Details: map[string]string{"missing": strconv.Itoa(missing)}})
	}
	for _, en := range queue {
		b.Write(en.line)
	}
	return b.Bytes()
}

// Problems are what keeps events from being written now.
func (l *Log) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	if l.missing > 0 {
		out = append(out, fmt.Sprintf("%d events could not be written to %s: the log of ashored has them, and why; a line audit.gap will tell of them once there is room", l.missing, l.path))
	}
	if l.stuck {
		out = append(out, fmt.Sprintf("the disk of %s does not answer: events wait in memory", l.path))
	}
	return out
}

// sync makes what was written durable.
func (l *Log) sync() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if !l.dirty {
		return
	}
	if err := l.file.f.Sync(); err != nil {
		l.log.Error("the audit log is not on the disk", "path", l.path, "error", err)
		return
	}
	l.dirty = false
}
