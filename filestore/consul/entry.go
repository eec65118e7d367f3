package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// head is what stands at the key head: which entry is the newest, and where the snapshot is.
type head struct {
	// Format is that of the head, of the entries and of the snapshots.
	Format int `json:"format"`
	position
	// Begun is when the log was.
	Begun time.Time `json:"begun"`
	// Snapshot is the state up to an entry; nil: there is none yet, and every entry stands. Former
	// is the one before that: what is newer than it still stands, for those who are reading it.
	Snapshot *snapshotRef `json:"snapshot,omitempty"`
	Former   *snapshotRef `json:"former,omitempty"`
}

// snapshotRef says where a snapshot is, and of which entry.
type snapshotRef struct {
	Sequence uint64 `json:"sequence"`
	Entry    string `json:"entry"`
	content
}

// about is the line that an entry begins with.
type about struct {
	Format int `json:"format"`
	position
	// Previous is the ID of the entry before; empty: this is the first.
	Previous string `json:"previous,omitempty"`
	// By is the replica that wrote it, and At when, by its clock: for people.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
	content
}

// errFormat means that a release with another format wrote something.
var errFormat = errors.New("another release of Ashore wrote it: run the same release on all replicas")

// parseHead reads what stands at the key head.
func parseHead(b []byte) (head, error) {
	var h head
	if err := decodeFormat(b, &h); err != nil {
		return h, err
	}
	if err := h.position.check(); err != nil {
		return h, err
	}
	for _, s := range []*snapshotRef{h.Snapshot, h.Former} {
		if s == nil {
			continue
		}
		if s.Sequence == 0 || s.Sequence > h.Sequence || !validID(s.Entry) || s.Chunks == "" {
			return h, errors.New("its snapshot is none of this log")
		}
		if err := s.content.check(); err != nil {
			return h, fmt.Errorf("its snapshot: %w", err)
		}
	}
	if h.Former != nil && (h.Snapshot == nil || h.Former.Sequence > h.Snapshot.Sequence) {
		return h, errors.New("its former snapshot is newer than its snapshot")
	}
	return h, nil
}

// parseEntry reads an entry: the line about it, and what follows it.
func parseEntry(b []byte) (about, []byte, error) {
	var a about
	line, raw, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return a, nil, errors.New("it has no line")
	}
	if err := decodeFormat(line, &a); err != nil {
		return a, nil, err
	}
	if err := a.position.check(); err != nil {
		return a, nil, err
	}
	if err := a.content.check(); err != nil {
		return a, nil, err
	}
	if a.Previous != "" && !validID(a.Previous) || (a.Previous == "") != (a.Sequence == 1) {
		return a, nil, fmt.Errorf("entry %d follows on %.40q", a.Sequence, a.Previous)
	}
	if a.Chunks != "" && len(raw) > 0 {
		return a, nil, errors.New("it has a content beside its chunks")
	}
	return a, raw, nil
}

// check says what keeps a position from being that of an entry.
func (p position) check() error {
	if !validID(p.Log) || !validID(p.Entry) || p.Sequence == 0 {
		return fmt.Errorf("entry %d, %.40q of log %.40q: these are no IDs", p.Sequence, p.Entry, p.Log)
	}
	return nil
}

// decodeFormat reads what has a format.
func decodeFormat(b []byte, into any) error {
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	switch {
	case f.Format < 1:
		return errors.New("it has no format")
	case f.Format != format:
		return fmt.Errorf("it has format %d, and this release reads format %d: %w", f.Format, format, errFormat)
	}
	return decodeStrict(b, into)
}

// encodeLine is one line of JSON.
func encodeLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(b, '\n'), nil
}
