package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
)

// maxLine bounds a line that is read, in bytes. No event's is longer.
const maxLine = 1 << 20

// Tail hands emit the latest n events, the oldest of them first, and with follow every later one until ctx ends.
// A line that is no event is passed over. Errors: those of the file system and of emit; that of ctx is none.
func (l *Log) Tail(ctx context.Context, n int, follow bool, emit func(Event) error) error {
	woken, stop := l.watchers.add()
	defer stop()
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	r := &reader{path: l.path, f: f}
	defer func() { _ = r.f.Close() }() // it was read only
	latest, err := r.latest(n)
	if err != nil {
		return err
	}
	if missing := n - len(latest); missing > 0 {
		older, err := l.older(missing, f)
		if err != nil {
			return err
		}
		latest = append(older, latest...)
	}
	for _, e := range latest {
		if err := emit(e); err != nil {
			return err
		}
	}
	for follow {
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		}
		if err := r.rest(emit); err != nil {
			return err
		}
	}
	return nil
}

// older are the latest n events of the files before current.
func (l *Log) older(n int, current *os.File) ([]Event, error) {
	var out []Event
	for i := 1; i <= l.keep && len(out) < n; i++ {
		f, err := os.Open(l.path + "." + strconv.Itoa(i))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if same(f, current) { // it was renamed meanwhile
			_ = f.Close()
			continue
		}
		r := &reader{path: l.path, f: f}
		events, err := r.latest(n - len(out))
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		out = append(events, out...)
	}
	return out, nil
}

// same says that two open files are one.
func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// reader reads a file that grows, and the one that takes its place.
type reader struct {
	path string
	f    *os.File
	at   int64 // what was read of f, in whole lines
}

// latest reads the file to its end and returns its last n events.
func (r *reader) latest(n int) ([]Event, error) {
	var out []Event
	err := r.lines(func(e Event) error {
		if n > 0 {
			if len(out) == n {
				out = slices.Delete(out, 0, 1)
			}
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

// rest hands over what came since, also of the file that took this one's place.
func (r *reader) rest(emit func(Event) error) error {
	for {
		next, err := os.Open(r.path)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		if err := r.lines(emit); err != nil { // after the look at what is there now: a full file gets no more
			return errors.Join(err, next.Close())
		}
		if same(r.f, next) {
			return next.Close()
		}
		_ = r.f.Close()
		r.f, r.at = next, 0
	}
}

// lines hands over the events from r.at to the end of the file.
func (r *reader) lines(emit func(Event) error) error {
	if _, err := r.f.Seek(r.at, io.SeekStart); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	in := bufio.NewReaderSize(r.f, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil // a line without end is not whole yet
		case errors.Is(err, bufio.ErrBufferFull):
			r.at += int64(len(line))
			continue
		case err != nil:
			return fmt.Errorf("read the audit log: %w", err)
		}
		r.at += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			continue
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}

// watchers are those who follow. Safe for concurrent use.
type watchers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{} // guarded by mu
}

// add returns a channel that tell tells, and what ends that.
func (w *watchers) add() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[chan struct{}]struct{}{}
	}
	w.all[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, c)
	}
}

func (w *watchers) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		select {
		case c <- struct{}{}:
		default: // it has word already
		}
	}
}
