package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// maxBehind is how many events a follower may be behind.
const maxBehind = 1024

// Tail calls emit with the latest n events, the oldest first, and with follow with each later one
// until ctx ends. Errors: those of the file system, those of emit, and that emit is too slow.
func (l *Log) Tail(ctx context.Context, n int, follow bool, emit func(Event) error) error {
	later := make(chan Event, maxBehind)
	files, err := l.openAll(later)
	defer l.unfollow(later)
	defer func() {
		for _, f := range files {
			_ = f.Close() // it was read only
		}
	}()
	var latest []Event
	for i := 0; i < len(files) && len(latest) < n && err == nil; i++ {
		var events []Event
		events, err = lastEvents(files[i], n-len(latest))
		latest = append(events, latest...)
	}
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
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
		case e, open := <-later:
			if !open {
				return errors.New("events came faster than they were read: follow the audit log again")
			}
			if err := emit(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// reader reads a file up to a size.
type reader struct {
	io.Reader
	io.Closer
}

// openAll opens the files as they are now, the latest first. later receives the events after that.
func (l *Log) openAll(later chan Event) ([]reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers[later] = struct{}{}
	var out []reader
	for n := range l.file.keep + 1 {
		f, err := os.Open(l.file.numbered(n))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		info, err := f.Stat()
		if err != nil {
			return out, errors.Join(err, f.Close())
		}
		out = append(out, reader{io.LimitReader(f, info.Size()), f})
	}
	return out, nil
}

func (l *Log) unfollow(c chan Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, c)
}

// lastEvents returns the last n events of a file. It skips lines that are no events.
func lastEvents(r io.Reader, n int) ([]Event, error) {
	var out []Event
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out[max(0, len(out)-n):], nil // a line without an end is not complete
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			continue
		}
		if out = append(out, e); len(out) == 2*n { // one copy for n events
			out = slices.Delete(out, 0, n)
		}
	}
}
