package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// keeping is what applying changes needs to know besides them.
type keeping struct {
	// source is the name of the store, for objects.
	source string
	// most is how many writes of objects are remembered, and bytes how large they may be together.
	most, bytes int
}

// begin is the state in which the commits of the next entry are applied.
func (s *state) begin(log, entry string) *state {
	out := *s
	out.position = position{Log: log, Sequence: s.Sequence + 1, Entry: entry}
	out.place = 0
	return &out
}

// apply makes the state after a commit. The same commits give the same state on every replica.
func (s *state) apply(c *commit, k keeping) *state {
	out := *s
	for _, w := range c.Records {
		out.applyRecord(w)
	}
	if c.Objects != nil {
		out.applyObjects(c.Objects, k)
	}
	return &out
}

// applyRecord sets a record. Its version has the ID of the entry, so that it does not come back
// when Consul's state was restored from an older one.
func (s *state) applyRecord(w recordWrite) {
	s.place++
	if w.Value == nil {
		s.records = s.records.Without(w.key())
		return
	}
	s.records = s.records.With(w.key(), &value{version: fmt.Sprintf("%d.%d-%.8s", s.Sequence, s.place, s.Entry),
		content: w.Value})
}

// applyObjects makes a revision.
func (s *state) applyObjects(o *objectsWrite, k keeping) {
	s.revision = max(s.revision, o.Above) + 1
	for i, w := range o.Writes {
		key := w.key()
		past := &pastWrite{key: key, who: o.Who, when: o.When}
		have, had := s.objects.Get(key)
		if had {
			past.before = have.stored
		}
		s.remember(writeID{s.revision, i}, past)
		if w.Object == nil {
			s.objects = s.objects.Without(key)
			continue
		}
		next := *w.Object
		next.Revision = s.revision
		if had {
			next.Created = have.Created
		} else if next.Created.IsZero() {
			next.Created = o.When
		}
		s.objects = s.objects.With(key, newObject(k.source, key, &next))
	}
	s.forget(k)
}

// remember adds a write to the history.
func (s *state) remember(id writeID, p *pastWrite) {
	if old, had := s.history.Get(id); had {
		s.remembered -= old.size()
	}
	s.history = s.history.With(id, p)
	s.remembered += p.size()
}

// forget drops the oldest revisions while there are more writes than are remembered, or larger
// ones, but not the present one.
func (s *state) forget(k keeping) {
	var dropping uint64
	for id, p := range s.history.All() {
		enough := s.history.Len() <= k.most && s.remembered <= k.bytes
		if id.Revision == s.revision || enough && id.Revision != dropping {
			return
		}
		s.history = s.history.Without(id)
		s.remembered -= p.size()
		dropping = id.Revision
	}
}

// sharing is the state in which what is equal in old stays the same in memory.
func (s *state) sharing(old *state) *state {
	out := *s
	for c := range s.objects.Diff(old.objects) {
		if c.HadOld && c.HasNew && c.Old.equal(c.New.stored) {
			out.objects = out.objects.With(c.Key, c.Old)
		}
	}
	for c := range s.history.Diff(old.history) {
		if c.HadOld && c.HasNew && c.Old.equal(c.New) {
			out.history = out.history.With(c.Key, c.Old)
		}
	}
	for c := range s.records.Diff(old.records) {
		if c.HadOld && c.HasNew && c.Old.version == c.New.version && bytes.Equal(c.Old.content, c.New.content) {
			out.records = out.records.With(c.Key, c.Old)
		}
	}
	return &out
}

// encodeCommits is the content of an entry.
func encodeCommits(list []json.RawMessage) []byte {
	out := []byte{'['}
	for i, c := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, c...)
	}
	return append(out, ']')
}
