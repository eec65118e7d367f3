package consul

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/record"
)

// state is the content of a log at an entry. It is immutable.
type state struct {
	head
	// index is Consul's index of the key head; 0: there is no head, or it was not read yet.
	index   uint64
	records pmap.Map[record.Key, *value]
	// generation is how often the log was read anew. States of one generation follow each other.
	generation int
}

// value is the value of a record. It is immutable.
type value struct {
	version string // the ID of the entry that wrote it
	content []byte
	// In the table of objects: the decoded object, or why it cannot be decoded.
	object  *config.Object
	problem string
}

// record returns a copy of a record; v is nil if there is none.
func (v *value) record(key record.Key) record.Record {
	if v == nil {
		return record.Record{Key: key}
	}
	return record.Record{Key: key, Value: append([]byte{}, v.content...), Version: v.version}
}

// table returns the records of a table in the order of their names.
func (s *state) table(table string) iter.Seq2[string, *value] {
	return func(yield func(string, *value) bool) {
		for k, v := range s.records.From(record.Key{Table: table}) {
			if k.Table != table || !yield(k.Name, v) {
				return
			}
		}
	}
}

// items returns all records, for a snapshot.
func (s *state) items() []item {
	out := make([]item, 0, s.records.Len())
	for k, v := range s.records.All() {
		out = append(out, item{k.Table, k.Name, v.version, v.content})
	}
	return out
}

// decoder makes values.
type decoder func(key record.Key, version string, content []byte) *value

// with returns the state with items set or deleted. version is that of items that have none.
func (s *state) with(items []item, version string, decode decoder) *state {
	out := *s
	for _, i := range items {
		if i.Value == nil {
			out.records = out.records.Without(i.key())
			continue
		}
		out.records = out.records.With(i.key(), decode(i.key(), cmp.Or(i.Version, version), i.Value))
	}
	return &out
}

// sharing returns the state with the values of old where they are equal, so that an object that did
// not change keeps its pointer.
func (s *state) sharing(old *state) *state {
	out := *s
	for c := range s.records.Diff(old.records) {
		if c.HadOld && c.HasNew && c.Old.version == c.New.version && bytes.Equal(c.Old.content, c.New.content) {
			out.records = out.records.With(c.Key, c.Old)
		}
	}
	return &out
}
