package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Tail returns the latest n events, the oldest first.
func (l *Log) Tail(n int) ([]Event, error) {
	files, err := l.openAll()
	defer func() {
		for _, f := range files {
			_ = f.Close() // it was read only
		}
	}()
	latest := []Event{}
	for i := 0; i < len(files) && len(latest) < n && err == nil; i++ {
		var events []Event
		events, err = lastEvents(files[i], n-len(latest))
		latest = append(events, latest...)
	}
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return latest, nil
}

// openAll opens the files as they are now, the latest first. A rotation may rename them later.
func (l *Log) openAll() ([]*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*os.File
	for n := range l.file.keep + 1 {
		f, err := os.Open(l.file.numbered(n))
		switch {
		case err == nil:
			out = append(out, f)
		case !errors.Is(err, os.ErrNotExist):
			return out, err
		}
	}
	return out, nil
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
