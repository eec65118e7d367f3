package consul

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// A replica keeps a copy of the state at home, so that it knows after a start while Consul is away
// who is revoked, which virtual IPs are allocated, and what operators may ask for: objects and
// their history (copyobjects.go). It is of one place in the log as a whole. What is active then is
// what internal/feed saved of the store as a source.

const (
	// copyGap gathers what is written at the same time.
	copyGap = 100 * time.Millisecond
	// copyTouch is how often it is written down that the copy is right: after a restart its age may
	// be that much too high.
	copyTouch = time.Minute
	// The names of contents: copyAbout and copyWhole, and what those of records, objects and past
	// writes begin with.
	copyAbout, copyWhole             = "about", "whole"
	copyRecord, copyObject, copyPast = "record:", "object:", "past:"
)

// copyName is the name of the copy of the store of some options. Stores whose options name
// different places never share one: who was revoked in one mesh says nothing of another.
func copyName(o Options) string { return "records:consul:" + o.place() }

// newCopy returns what writes the copy of a store.
func newCopy(cfg Config) *writebehind.Writer {
	save := func(ctx context.Context, content map[string][]byte) error {
		return cfg.Kept.SaveGroups(ctx, copyName(cfg.Options), content)
	}
	return writebehind.New(writebehind.Config{Save: save, What: "copy of the store in Consul", Gather: copyGap,
		Log: cfg.Log})
}

// aboutCopy is which state a copy is of.
type aboutCopy struct {
	position
	Revision uint64    `json:"revision"`
	AsOf     time.Time `json:"asOf"`
}

// copiedRecord is a record in a copy.
type copiedRecord struct {
	Version string `json:"version"`
	Value   []byte `json:"value"`
}

// keepCopy has what differs between two states written into the copy.
func (s *Store) keepCopy(old, next *state) {
	contents := map[string]writebehind.Encode{}
	for c := range next.records.Diff(old.records) {
		name, v := copyRecord+copiedKey(c.Key), c.New
		if contents[name] = nil; c.HasNew {
			contents[name] = func() ([]byte, error) { return json.Marshal(copiedRecord{v.version, v.content}) }
		}
	}
	copyObjects(contents, old, next)
	s.sweepCopied(contents)
	contents[copyAbout] = next.about(time.Now())
	if next.Log == "" {
		contents[copyAbout] = nil
	}
	s.copy.Put(contents)
}

// about is which state this is, and when it was last known to be right.
func (s *state) about(asOf time.Time) writebehind.Encode {
	about := aboutCopy{position: s.position, Revision: s.revision, AsOf: asOf.UTC()}
	return func() ([]byte, error) { return json.Marshal(about) }
}

// touchCopy writes down when the copy was last known to be right, until ctx ends: when an outage
// begins or is over, and once a copyTouch.
func (s *Store) touchCopy(ctx context.Context) {
	turned := make(chan struct{}, 1)
	defer s.standing.subscribe(turned)()
	tick := time.NewTicker(copyTouch)
	defer tick.Stop()
	var told config.Outage
	for {
		select {
		case <-ctx.Done():
			return
		case <-turned:
		case <-tick.C:
		}
		if s.await(ctx) != nil {
			return
		}
		now := s.Standing()
		if known := s.state.Load(); !known.partial && known.Log != "" && (now.Error == "" || now.Since != told.Since) {
			asOf := now.Since
			if now.Error == "" {
				asOf = time.Now()
			}
			s.copy.Put(map[string]writebehind.Encode{copyAbout: known.about(asOf)})
		}
		told = now
		<-s.turn
	}
}

// CopyTrouble is why this replica's copy cannot be saved: a start while Consul is down would use an
// older one.
func (s *Store) CopyTrouble() config.Outage {
	since, err := s.copy.Err()
	if err == nil {
		return config.Outage{}
	}
	return config.Outage{Error: err.Error(), Since: since}
}

// loadCopy reads the copy, of objects and their history what they are kept as; without one, or with
// an error, the state knows nothing.
func (s *Store) loadCopy(ctx context.Context) (out *state, found bool, err error) {
	contents, err := s.cfg.Kept.LoadGroups(ctx, copyName(s.cfg.Options))
	nothing := &state{partial: true}
	if err != nil || contents[copyAbout] == nil {
		return nothing, false, err
	}
	var about aboutCopy
	if err := decodeStrict(contents[copyAbout], &about); err != nil {
		return nothing, false, fmt.Errorf("read %s: %w", copyAbout, err)
	}
	if err := about.position.check(); err != nil {
		return nothing, false, err
	}
	out = &state{position: about.position, revision: about.Revision, partial: true}
	for name, content := range contents {
		if err := out.takeCopied(name, content); err != nil {
			return nothing, false, fmt.Errorf("read %q: %w", name, err)
		}
	}
	s.uncopied = copiedObjects(contents)
	s.standing.stands(about.AsOf)
	return out, true, nil
}

// takeCopied adds one content of a copy.
func (s *state) takeCopied(name string, content []byte) error {
	if text, ok := strings.CutPrefix(name, copyRecord); ok {
		key, err := parseCopiedKey(text)
		if err != nil {
			return err
		}
		var r copiedRecord
		if err := decodeStrict(content, &r); err != nil {
			return err
		}
		if r.Version == "" || r.Value == nil {
			return errors.New("a record without a version or a value")
		}
		s.records = s.records.With(key, &value{r.Version, r.Value})
	}
	return nil
}

// copiedKey is a record's key as text: the length of the table's name, the table and the name, so
// that no two are alike.
func copiedKey(k recordKey) string {
	return string(binary.AppendUvarint(nil, uint64(len(k.Table)))) + k.Table + k.Name
}

// parseCopiedKey is the inverse of copiedKey.
func parseCopiedKey(text string) (recordKey, error) {
	n, size := binary.Uvarint([]byte(text))
	if size <= 0 || n == 0 || n >= uint64(len(text)-size) {
		return recordKey{}, errors.New("not the key of a record")
	}
	return recordKey{Table: text[size : size+int(n)], Name: text[size+int(n):]}, nil
}
