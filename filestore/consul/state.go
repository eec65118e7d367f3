package consul

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/record"
)

// state is what the log says up to an entry. It never changes: apply makes a new one, which shares
// what is the same.
type state struct {
	position
	records pmap.Map[recordKey, *value]
	objects pmap.Map[config.Key, *object]
	history pmap.Map[writeID, *pastWrite]
	// remembered is the size of the history, in bytes.
	remembered int
	// revision is that of the last write of objects.
	revision uint64
	// place counts the records that the newest entry wrote; it makes their versions differ.
	place int
	// generation counts how often this replica made the state anew of what Consul held: states of
	// one follow on one another.
	generation int
	// partial says that the state is from a copy: it is made anew once Consul answers. Then copied
	// says that the copy has the objects and their history, which are not known otherwise.
	partial, copied bool
}

// knowsObjects says that the objects and their history are those of its place in the log.
func (s *state) knowsObjects() bool { return !s.partial || s.copied }

// position is a place in a log.
type position struct {
	// Log is the random ID of the log; empty: there is none yet.
	Log string `json:"log"`
	// Sequence is the number of the newest entry, and Entry its random ID. 0 and empty: there is
	// none yet.
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

// pastWrite is one write of an object, as what undoes it. What it wrote is what the next write of
// the object replaced, and in the end what is stored now.
type pastWrite struct {
	key    config.Key
	who    string
	when   time.Time
	before *stored // nil: there was none
}

// pastOverhead is what a write in the history takes besides its texts, in bytes; about that in
// memory, and in a snapshot.
const pastOverhead = 256

func (p *pastWrite) equal(o *pastWrite) bool {
	return p.key == o.key && p.who == o.who && p.when.Equal(o.when) && (p.before == nil) == (o.before == nil) &&
		(p.before == nil || p.before.equal(o.before))
}

// size is how large a write in the history counts, in bytes: by its content alone, so that every
// replica forgets the same ones.
func (p *pastWrite) size() int {
	n := pastOverhead + len(p.key.Kind) + len(p.key.Namespace) + len(p.key.Name) + len(p.who)
	if p.before == nil {
		return n
	}
	for _, texts := range []map[string]string{p.before.Labels, p.before.Annotations} {
		for k, v := range texts {
			n += len(k) + len(v)
		}
	}
	return n + len(p.before.Spec)
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
	o := &config.Object{Key: key, Labels: maps.Clone(s.Labels), Annotations: maps.Clone(s.Annotations),
		Created: s.Created, Spec: info.NewSpec(),
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
	return &stored{Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations), Created: o.Created,
		Spec: spec}, nil
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
