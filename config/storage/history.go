package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// PastWrite is one write of one object in the history. What the write stored is the Before of the
// next write of the object, or the stored object.
type PastWrite struct {
	Who  string    `json:"who"`
	When time.Time `json:"when"`
	// Before is the replaced or deleted object, encoded; empty: there was none that could be read.
	Before json.RawMessage `json:"before,omitempty"`
}

// PastKey names a PastWrite.
type PastKey struct {
	Revision uint64
	Key      config.Key
}

// Historian answers a Query.
type Historian struct {
	// Source is the name of the store.
	Source string
	Query  config.Query
	// Latest is the latest revision, and Oldest the oldest one in the history; 0 if that is empty.
	Latest, Oldest uint64
	// Stored returns the encoded object that is stored now; nil if there is none.
	Stored func(config.Key) []byte

	revisions []config.Revision
	now       map[config.Key][]byte // what there was after the write that is added next
}

// Past answers the query from encoded PastWrites, the latest first.
func (h *Historian) Past(ctx context.Context, writes iter.Seq2[PastKey, []byte]) (config.Past, error) {
	since := h.Latest
	if h.Oldest > 0 {
		since = h.Oldest - 1
	}
	past := config.Past{Latest: Revision(h.Latest), Since: Revision(since)}
	var after uint64
	if h.Query.After != "" {
		var err error
		if after, err = config.ParseRevision(h.Query.After); err != nil {
			return past, err
		}
	}
	if h.Query.Limit < 0 {
		return past, nil
	}
	h.now = map[config.Key][]byte{}
	bytes := 0 // of the writes that were added
	for k, write := range writes {
		if err := ctx.Err(); err != nil {
			return past, err
		}
		if h.Query.Key != (config.Key{}) && h.Query.Key != k.Key {
			continue
		}
		number, n := Revision(k.Revision), len(h.revisions)
		if n == 0 || h.revisions[n-1].Number != number {
			full := n == h.Query.Limit || h.Query.Bytes > 0 && bytes > h.Query.Bytes
			if k.Revision <= after || n > 0 && full {
				break
			}
			h.revisions = append(h.revisions, config.Revision{Number: number})
		}
		if err := h.add(&h.revisions[len(h.revisions)-1], k.Key, write); err != nil {
			return past, fmt.Errorf("revision %s of %s: %w", number, k.Key, err)
		}
		bytes += len(write)
	}
	for _, r := range h.revisions {
		slices.Reverse(r.Writes)
	}
	past.Revisions = h.revisions
	return past, nil
}

func (h *Historian) add(r *config.Revision, key config.Key, write []byte) error {
	var w PastWrite
	if err := json.Unmarshal(write, &w); err != nil {
		return err
	}
	now, seen := h.now[key]
	if !seen {
		now = h.Stored(key)
	}
	h.now[key] = w.Before
	after, err := h.object(key, now)
	if err != nil {
		return err
	}
	before, err := h.object(key, w.Before)
	if err != nil {
		return err
	}
	r.Who, r.When = w.Who, w.When
	r.Writes = append(r.Writes, config.Write{Key: key, Before: before, After: after})
	return nil
}

// object decodes an object; nil if there is none.
func (h *Historian) object(key config.Key, value []byte) (*config.Object, error) {
	switch {
	case len(value) == 0:
		return nil, nil
	case h.Query.Bare:
		return decodeBare(key, value)
	}
	return DecodeObject(h.Source, key, value)
}
