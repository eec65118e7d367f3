package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// maxLine bounds a line that is read, in bytes. No event's is longer.
const maxLine = 1 << 20

// Tail hands emit the latest n events, the oldest of them first, and with follow every later one until ctx ends.
// A line that is no event is passed over. Errors: those of the file system and of emit; that of ctx is none.
func (l *Log) Tail(ctx context.Context, n int, follow bool, emit func(Event) error) error {
	woken, stop := l.watchers.add()
	defer stop()
	f, err := l.file.at(0)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	r := &reader{file: l.file, f: f}
	defer func() { _ = r.f.Close() }() // it was read only
	latest, err := r.latest(n)
	if err != nil {
		return err
	}
	older, err := l.older(n-len(latest), f)
	if err != nil {
		return err
	}
	for _, e := range append(older, latest...) {
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

// older are the latest n events of the files before one.
func (l *Log) older(n int, f *os.File) ([]Event, error) {
	var out []Event
	for len(out) < n {
		earlier, err := l.file.earlier(f)
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if earlier == nil {
			break
		}
		defer func() { _ = earlier.Close() }() // it was read only
		events, err := (&reader{file: l.file, f: earlier}).latest(n - len(out))
		if err != nil {
			return nil, err
		}
		out, f = append(events, out...), earlier
	}
	return out, nil
}

// reader reads a file that grows, and those that take its place.
type reader struct {
	file *file
	f    *os.File
	at   int64 // what was read of f, in whole lines
}

// latest reads the file to its end and returns its last n events.
func (r *reader) latest(n int) ([]Event, error) {
	var out []Event
	err := r.lines(func(e Event) error {
		if n <= 0 {
			return nil
		}
		if out = append(out, e); len(out) == 2*n { // one copy for n events
			out = out[:copy(out, out[n:])]
		}
		return nil
	})
	return out[max(0, len(out)-n):], err
}

// rest hands over what came since, also of the files that took this one's place.
func (r *reader) rest(emit func(Event) error) error {
	for {
		next, err := r.file.later(r.f)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		if err := r.lines(emit); err != nil { // after the look at what is there now: a full file gets no more
			if next != nil {
				err = errors.Join(err, next.Close())
			}
			return err
		}
		if next == nil {
			return nil
		}
		_ = r.f.Close() // it was read only
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
