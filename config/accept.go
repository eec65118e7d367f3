package config

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Accept is Parse for an object that was never text: o was made of a message that another program
// encoded. It finds what reading text would have refused (fields and enum values that this release
// does not know, numbers and times that are none, limits), then what Validate does, and completes
// o: hosts are in lower case, Hash is set, and o is immutable from then on. ok is false when a
// problem is an error; o must not take effect then.
func Accept(o *Object) (problems []Problem, ok bool) {
	c := checker{object: o}
	if o.Spec != nil {
		w := walker{checker: &c}
		w.message("spec", o.Spec.ProtoReflect(), 1)
		if n := proto.Size(o.Spec); n > MaxFileSize {
			c.errorf("", "the object has %d bytes, more than %d", n, MaxFileSize)
		}
	}
	if len(c.problems) == 0 {
		lowerHosts(o)
		c.problems = Validate(o)
	}
	if slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Severity == feed.Error }) {
		return c.problems, false
	}
	shareLabels(o)
	o.Hash = HashOf(o)
	return c.problems, true
}

// walker looks at every value of a message that came as bytes.
type walker struct{ *checker }

// full says that enough is wrong already.
func (w walker) full() bool { return len(w.problems) >= MaxProblems }

// message checks m, which stands at path.
func (w walker) message(path string, m protoreflect.Message, depth int) {
	if depth > MaxDepth {
		w.errorf(path, "values nest deeper than %d levels", MaxDepth)
		return
	}
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		w.errorf(path, "%s: whoever sent this speaks a newer version of the API; nothing is accepted and ignored",
			unknownField(unknown))
	}
	w.time(path, m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		w.field(path+"."+fd.JSONName(), fd, v, depth)
		return !w.full()
	})
}

// unknownField names the first of the fields that are not known.
func unknownField(raw protoreflect.RawFields) string {
	number := uint64(0)
	for i, b := range raw { // the tag is a varint of the number, shifted by three
		number |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 || i == 4 {
			break
		}
	}
	return fmt.Sprintf("unknown field of number %d", number>>3)
}

// time checks durations and times, whose parts may be out of range.
func (w walker) time(path string, m protoreflect.Message) {
	var err error
	switch t := m.Interface().(type) {
	case *durationpb.Duration:
		err = t.CheckValid()
	case *timestamppb.Timestamp:
		err = t.CheckValid()
	}
	if err != nil {
		w.errorf(path, "not a time that exists: %s", err)
	}
}

// field checks the values of one field.
func (w walker) field(path string, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) {
	switch {
	case fd.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			w.value(entry(path, k.String()), fd.MapValue(), v, depth)
			return !w.full()
		})
	case fd.IsList():
		if n := v.List().Len(); n > MaxItems {
			w.errorf(path, "the list has %d items, more than %d", n, MaxItems)
			return
		}
		for i := range v.List().Len() {
			if w.full() {
				return
			}
			w.value(at(path, i), fd, v.List().Get(i), depth)
		}
	default:
		w.value(path, fd, v, depth)
	}
}

// value checks one value.
func (w walker) value(path string, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		w.message(path, v.Message(), depth+1)
	case protoreflect.EnumKind:
		if fd.Enum().Values().ByNumber(v.Enum()) == nil {
			w.errorf(path, "unknown value %d of %s: whoever sent this speaks a newer version of the API", v.Enum(),
				fd.Enum().Name())
		}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			w.errorf(path, "%v is not a number", v.Float())
		}
	}
}
