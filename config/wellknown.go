package config

import (
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The messages of protobuf that JSON writes as plain values.
const (
	nameDuration  protoreflect.FullName = "google.protobuf.Duration"
	nameTimestamp protoreflect.FullName = "google.protobuf.Timestamp"
	nameStruct    protoreflect.FullName = "google.protobuf.Struct"
	nameValue     protoreflect.FullName = "google.protobuf.Value"
	nameListValue protoreflect.FullName = "google.protobuf.ListValue"
)

// acceptsNull says that null is a value of the field and not the lack of one.
func acceptsNull(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == nameValue
}

// wellKnown reads messages that are not written as an object with their fields; false: m is none.
func (d *decoder) wellKnown(m protoreflect.Message, n *yaml.Node) bool {
	name := m.Descriptor().FullName()
	if name.Parent() != "google.protobuf" {
		return false
	}
	switch name {
	case nameDuration:
		d.duration(m, n)
	case nameTimestamp:
		if t := d.timestamp(n); !t.IsZero() {
			copyMessage(m, timestamppb.New(t).ProtoReflect())
		}
	case nameStruct:
		if n.Kind != yaml.MappingNode {
			d.errorf(n, "want an object, not %s", describe(n))
			return true
		}
		copyMessage(m, d.structure(n).ProtoReflect())
	case nameListValue:
		if n.Kind != yaml.SequenceNode {
			d.errorf(n, "want a list, not %s", describe(n))
			return true
		}
		copyMessage(m, d.values(n).ProtoReflect())
	case nameValue:
		copyMessage(m, d.any(n).ProtoReflect())
	default:
		return d.wrapper(m, n)
	}
	return true
}

// wrapper reads BoolValue, UInt32Value and their like: messages with the one field "value".
func (d *decoder) wrapper(m protoreflect.Message, n *yaml.Node) bool {
	fields := m.Descriptor().Fields()
	if fields.Len() != 1 || fields.Get(0).Name() != "value" {
		return false
	}
	if v, ok := d.scalar(fields.Get(0), n); ok {
		m.Set(fields.Get(0), v)
	}
	return true
}

// duration reads "1.5s", "100ms", "1h30m".
func (d *decoder) duration(m protoreflect.Message, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		d.errorf(n, "want a duration such as 5s or 100ms, not %s", describe(n))
		return
	}
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		d.errorf(n, "want a duration such as 5s or 100ms, not %s", describe(n))
		return
	}
	copyMessage(m, durationpb.New(v).ProtoReflect())
}

// structure reads an object of any form.
func (d *decoder) structure(n *yaml.Node) *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(n.Content)/2)}
	d.fields(n, func(key, value *yaml.Node) {
		d.key(key.Value)
		s.Fields[key.Value] = d.any(value)
		d.pop()
	})
	return s
}

// values reads a list of any form.
func (d *decoder) values(n *yaml.Node) *structpb.ListValue {
	l := &structpb.ListValue{Values: make([]*structpb.Value, 0, len(n.Content))}
	for i, item := range n.Content {
		d.index(i)
		l.Values = append(l.Values, d.any(item))
		d.pop()
	}
	return l
}

// any reads a value of any form.
func (d *decoder) any(n *yaml.Node) *structpb.Value {
	n = deref(n)
	switch {
	case !d.visit(n), isNull(n):
		return structpb.NewNullValue()
	case n.Kind == yaml.MappingNode:
		return structpb.NewStructValue(d.structure(n))
	case n.Kind == yaml.SequenceNode:
		return structpb.NewListValue(d.values(n))
	}
	switch n.ShortTag() {
	case "!!bool":
		b, _ := d.boolean(n)
		return structpb.NewBoolValue(b)
	case "!!int":
		return d.anyInteger(n)
	case "!!float":
		v, ok := d.float(protoreflect.DoubleKind, n)
		if !ok {
			return structpb.NewNullValue()
		}
		return structpb.NewNumberValue(v.Float())
	default:
		s, _ := d.text(n)
		return structpb.NewStringValue(s)
	}
}

// anyInteger reads a whole number into the double that a Value has, when it fits exactly.
func (d *decoder) anyInteger(n *yaml.Node) *structpb.Value {
	v, ok := d.integer(protoreflect.Int64Kind, n)
	if !ok {
		return structpb.NewNullValue()
	}
	const exact = 1 << 53
	if i := v.Int(); i > exact || i < -exact {
		d.errorf(n, "the number is too large to be kept exactly: put it in quotes")
	}
	return structpb.NewNumberValue(float64(v.Int()))
}

// copyMessage sets the fields of to, which is of the same type, to those of from.
func copyMessage(to, from protoreflect.Message) {
	from.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(fd, v)
		return true
	})
}
