package consul

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// state is what the log says up to an entry. It never changes: apply makes a new one, which shares what is the same.
type state struct {
	position
	records   pmap.Map[recordKey, *value]
	objects   pmap.Map[config.Key, *object]
	history   pmap.Map[writeID, *pastWrite]
	addresses pmap.Map[registry.Key, pair]
	taken     pmap.Map[netip.Addr, bool]
	// revision is that of the last write of objects.
	revision uint64
	// place counts the records that the newest entry wrote; it makes their versions differ.
	place int
	// generation counts how often this replica made the state anew of what Consul held: states of one follow on one another.
	generation int
	// partial says that the objects are not known: the state is from a copy that has none.
	partial bool
}

// position is a place in a log.
type position struct {
	// Log is the random ID of the log; empty: there is none yet.
	Log string `json:"log"`
	// Sequence is the number of the newest entry, and Entry its random ID. 0 and empty: there is none yet.
	Sequence uint64 `json:"sequence"`
	Entry    string `json:"entry"`
}

// recordKey is a record.Key in an order.
type recordKey record.Key

// Compare orders by table, then by name.
func (k recordKey) Compare(o recordKey) int {
	return cmp.Or(cmp.Compare(k.Table, o.Table), cmp.Compare(k.Name, o.Name))
}

// value is that of a record. Not to be changed.
type value struct {
	version string
	content []byte
}

// pair is an IPv4 and an IPv6 address.
type pair struct{ v4, v6 netip.Addr }

// stored is an object as it is kept. Not to be changed.
type stored struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Revision    uint64            `json:"revision,omitempty"`
	// Spec is the protobuf of the kind, encoded.
	Spec []byte `json:"spec"`
}

func (s *stored) equal(o *stored) bool {
	return s.Revision == o.Revision && s.Created.Equal(o.Created) && maps.Equal(s.Labels, o.Labels) &&
		maps.Equal(s.Annotations, o.Annotations) && bytes.Equal(s.Spec, o.Spec)
}

// object is one as it is kept, and decoded; with a problem it is not, as this release cannot.
type object struct {
	*stored
	decoded *config.Object
	problem string
}

// writeID tells the writes of objects apart, in their order.
type writeID struct {
	Revision uint64
	Place    int
}

// Compare orders by revision, then by place.
func (w writeID) Compare(o writeID) int {
	return cmp.Or(cmp.Compare(w.Revision, o.Revision), cmp.Compare(w.Place, o.Place))
}

// pastWrite is one write of an object, as what undoes it. What it wrote is what the next write of the object replaced, and in
// the end what is stored now.
type pastWrite struct {
	key    config.Key
	who    string
	when   time.Time
	before *stored // nil: there was none
}

// keeping is what applying changes needs to know besides them.
type keeping struct {
	// source is the name of the store, for objects.
	source string
	// most is how many writes of objects are remembered.
	most int
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
	for _, w := range c.Addresses {
		out.addresses = out.addresses.With(w.key(), pair{w.IPv4, w.IPv6})
		out.taken = out.taken.With(w.IPv4, true).With(w.IPv6, true)
	}
	return &out
}

// applyRecord sets a record. Its version has the ID of the entry, so that it does not come back when Consul's state was
// restored from an older one.
func (s *state) applyRecord(w recordWrite) {
	s.place++
	if w.Value == nil {
		s.records = s.records.Without(w.key())
		return
	}
	s.records = s.records.With(w.key(), &value{version: fmt.Sprintf("%d.%d-%.8s", s.Sequence, s.place, s.Entry), content: w.Value})
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
		s.history = s.history.With(writeID{s.revision, i}, past)
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
	s.forget(k.most)
}

// forget drops the oldest revisions while there are more writes than are remembered, but not the present one.
func (s *state) forget(most int) {
	left := s.history.Len()
	if left <= most {
		return
	}
	var dropping uint64
	for id := range s.history.All() {
		if id.Revision == s.revision || left <= most && id.Revision != dropping {
			return
		}
		s.history = s.history.Without(id)
		dropping = id.Revision
		left--
	}
}

// newObject decodes an object for a source by name.
func newObject(source string, key config.Key, s *stored) *object {
	o, err := s.decode(source, key)
	if err != nil {
		return &object{stored: s, problem: fmt.Sprintf("the stored object cannot be used by this release (%v): write it anew or delete it", err)}
	}
	return &object{stored: s, decoded: o}
}

// decode makes the object that is kept.
func (s *stored) decode(source string, key config.Key) (*config.Object, error) {
	info, ok := config.Info(key.Kind)
	if !ok {
		return nil, fmt.Errorf("read %s: unknown kind %q", key, key.Kind)
	}
	o := &config.Object{Key: key, Labels: maps.Clone(s.Labels), Annotations: maps.Clone(s.Annotations), Created: s.Created, Spec: info.NewSpec(),
		Origin: config.Origin{Source: source}, Revision: storage.Revision(s.Revision)}
	if err := proto.Unmarshal(s.Spec, o.Spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	o.Hash = config.HashOf(o)
	return o, nil
}

// keep makes what is kept of an object; its revision is given when it is written.
func keep(o *config.Object) (*stored, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.Key, err)
	}
	return &stored{Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations), Created: o.Created, Spec: spec}, nil
}

// problemOf tells that an object cannot be used.
func problemOf(k config.Key, o *object) config.Problem {
	return config.Problem{Severity: feed.Error, Object: k.String(), Text: o.problem}
}

// list are the records of a table in the order of their names.
func (s *state) list(table string) []record.Record {
	var out []record.Record
	for k, v := range s.records.From(recordKey{Table: table}) {
		if k.Table != table {
			break
		}
		out = append(out, v.record(record.Key(k)))
	}
	return out
}

// record is a copy of a record, one that there is not when v is nil.
func (v *value) record(key record.Key) record.Record {
	if v == nil {
		return record.Record{Key: key}
	}
	return record.Record{Key: key, Value: append([]byte{}, v.content...), Version: v.version}
}

// sharing is the state in which what is equal in old stays the same in memory.
func (s *state) sharing(old *state) *state {
	out := *s
	for c := range s.objects.Diff(old.objects) {
		if c.HadOld && c.HasNew && c.Old.equal(c.New.stored) {
			out.objects = out.objects.With(c.Key, c.Old)
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
