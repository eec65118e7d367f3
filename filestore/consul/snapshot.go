package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// item is one line of a snapshot: one of its fields is set. The first is that of the state.
type item struct {
	State  *stateItem  `json:"state,omitempty"`
	Record *recordItem `json:"record,omitempty"`
	Object *objectItem `json:"object,omitempty"`
	Past   *pastItem   `json:"past,omitempty"`
}

// stateItem says what the snapshot is of, and how many lines follow.
type stateItem struct {
	position
	Revision uint64 `json:"revision"`
	Lines    int    `json:"lines"`
}

type recordItem struct {
	Table   []byte `json:"table"`
	Name    []byte `json:"name"`
	Version string `json:"version"`
	Value   []byte `json:"value"`
}

type objectItem struct {
	objectName
	Object *stored `json:"object"`
}

type pastItem struct {
	Revision uint64 `json:"revision"`
	Place    int    `json:"place"`
	objectName
	Who    string    `json:"who"`
	When   time.Time `json:"when"`
	Before *stored   `json:"before,omitempty"`
}

func pastItemOf(id writeID, p *pastWrite) pastItem {
	return pastItem{id.Revision, id.Place, nameOf(p.key), p.who, p.when, p.before}
}

// encode is the state as a snapshot.
func (s *state) encode() ([]byte, error) {
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	lines := s.records.Len() + s.objects.Len() + s.history.Len()
	err := w.Encode(item{State: &stateItem{position: s.position, Revision: s.revision, Lines: lines}})
	put := func(i item) {
		if err == nil {
			err = w.Encode(i)
		}
	}
	for k, v := range s.records.All() {
		put(item{Record: &recordItem{[]byte(k.Table), []byte(k.Name), v.version, v.content}})
	}
	for k, o := range s.objects.All() {
		put(item{Object: &objectItem{nameOf(k), o.stored}})
	}
	for id, p := range s.history.All() {
		put(item{Past: new(pastItemOf(id, p))})
	}
	if err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	return b.Bytes(), nil
}

// decodeState reads a snapshot.
func decodeState(b []byte, k keeping) (*state, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var first item
	if err := d.Decode(&first); err != nil {
		return nil, err
	}
	if first.State == nil {
		return nil, errors.New("the first line is not about the state")
	}
	s := &state{position: first.State.position, revision: first.State.Revision}
	if err := s.position.check(); err != nil {
		return nil, err
	}
	lines := 0
	for ; ; lines++ {
		var i item
		if err := d.Decode(&i); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines+2, err)
		}
		if err := s.take(i, k); err != nil {
			return nil, fmt.Errorf("line %d: %w", lines+2, err)
		}
	}
	if lines != first.State.Lines {
		return nil, fmt.Errorf("there are %d lines, and should be %d", lines, first.State.Lines)
	}
	return s, nil
}

// take adds a line of a snapshot.
func (s *state) take(i item, k keeping) error {
	switch {
	case i.Record != nil:
		return s.takeRecord(i.Record)
	case i.Object != nil:
		return s.takeObject(i.Object, k)
	case i.Past != nil:
		return s.takePast(i.Past)
	}
	return errors.New("there is nothing in it that is known")
}

func (s *state) takeRecord(r *recordItem) error {
	if len(r.Table) == 0 || len(r.Name) == 0 || r.Version == "" || r.Value == nil {
		return errors.New("a record without a name, a version or a value")
	}
	s.records = s.records.With(recordKey{Table: string(r.Table), Name: string(r.Name)},
		&value{version: r.Version, content: r.Value})
	return nil
}

func (s *state) takeObject(o *objectItem, k keeping) error {
	if o.Object == nil || o.Kind == "" || o.Namespace == "" || o.Name == "" {
		return fmt.Errorf("object %q has no content", o.objectName)
	}
	key := o.key()
	s.objects = s.objects.With(key, newObject(k.source, key, o.Object))
	return nil
}

func (s *state) takePast(p *pastItem) error {
	if p.Revision == 0 || p.Revision > s.revision || p.Place < 0 {
		return fmt.Errorf("write %d of revision %d, and the latest is %d", p.Place, p.Revision, s.revision)
	}
	s.remember(writeID{p.Revision, p.Place}, &pastWrite{key: p.key(), who: p.Who, when: p.When, before: p.Before})
	return nil
}
