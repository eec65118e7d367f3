package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
)

// encodedObject is an object as Marshal writes it.
type encodedObject struct {
	Kind        Kind              `json:"kind"`
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Revision    string            `json:"revision,omitempty"`
	Source      string            `json:"source,omitempty"`
	File        string            `json:"file,omitempty"`
	Line        int               `json:"line,omitempty"`
	Spec        []byte            `json:"spec"` // in protobuf's binary format
}

// Marshal encodes an object, with its Origin and Revision, for stores and caches. Equal objects give
// equal bytes.
func Marshal(o *Object) ([]byte, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.Key, err)
	}
	return json.Marshal(encodedObject{
		Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Labels: o.Labels, Annotations: o.Annotations, Created: o.Created, Revision: o.Revision,
		Source: o.Origin.Source, File: o.Origin.File, Line: o.Origin.Line,
		Spec: spec,
	})
}

// Unmarshal decodes what Marshal returned. The object is not validated, and has no Hash.
func Unmarshal(b []byte) (*Object, error) {
	var in encodedObject
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	info, ok := Info(in.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", in.Kind)
	}
	o := &Object{
		Key:    Key{Kind: in.Kind, Namespace: in.Namespace, Name: in.Name},
		Labels: in.Labels, Annotations: in.Annotations, Created: in.Created, Revision: in.Revision,
		Origin: Origin{Source: in.Source, File: in.File, Line: in.Line},
		Spec:   info.NewSpec(),
	}
	if err := proto.Unmarshal(in.Spec, o.Spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return o, nil
}

// MarshalJSON implements json.Marshaler by Marshal.
func (o *Object) MarshalJSON() ([]byte, error) { return Marshal(o) }

// UnmarshalJSON decodes what Marshal returned. It returns an error if Accept rejects the object.
func (o *Object) UnmarshalJSON(b []byte) error {
	decoded, err := Unmarshal(b)
	if err != nil {
		return err
	}
	if problems, ok := Accept(decoded); !ok {
		return errors.New(problems[slices.IndexFunc(problems, Problem.IsError)].String())
	}
	*o = *decoded
	return nil
}
