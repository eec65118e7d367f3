package config

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Accept is Parse for an object that was never text, because another program encoded its message.
// It refuses what Parse would refuse: unknown fields and enum values, invalid numbers and times, and
// what exceeds a limit. Then it validates o. It also completes o: hosts are in lower case, and Hash
// is set. From then on o is immutable. ok is false if a problem is an error; o must not take effect
// then.
func Accept(o *Object) (problems []Problem, ok bool) {
	c := checker{object: o}
	if o.Spec != nil {
		c.wellFormed("spec", o.Spec.ProtoReflect())
		if n := proto.Size(o.Spec); n > MaxFileSize {
			c.errorf("", "the object has %d bytes, more than %d", n, MaxFileSize)
		}
	}
	if len(c.problems) == 0 {
		if o.Spec != nil {
			lowerHosts(o.Spec.ProtoReflect())
		}
		c.problems = Validate(o)
	}
	if slices.ContainsFunc(c.problems, Problem.IsError) {
		return c.problems, false
	}
	shareLabels(o)
	o.Hash = HashOf(o)
	return c.problems, true
}

// wellFormed checks every value of a message that came as bytes.
func (c *checker) wellFormed(path string, m protoreflect.Message) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		c.errorf(path, "unknown field of number %d: the sender has a newer version of the API", number)
	}
	if d, ok := m.Interface().(*durationpb.Duration); ok && d.CheckValid() != nil {
		c.errorf(path, "not a time that exists: %s", d.CheckValid())
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := path + "." + fd.JSONName()
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				c.wellFormedValue(entry(path, k.String()), fd.MapValue(), v)
				return true
			})
		case fd.IsList() && v.List().Len() > MaxItems:
			c.errorf(path, "the list has %d items, more than %d", v.List().Len(), MaxItems)
		case fd.IsList():
			for i := range v.List().Len() {
				c.wellFormedValue(at(path, i), fd, v.List().Get(i))
			}
		default:
			c.wellFormedValue(path, fd, v)
		}
		return len(c.problems) < MaxProblems
	})
}

// wellFormedValue checks a single value of a field.
func (c *checker) wellFormedValue(path string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch v := v.Interface().(type) {
	case protoreflect.Message:
		c.wellFormed(path, v)
	case protoreflect.EnumNumber:
		if fd.Enum().Values().ByNumber(v) == nil {
			c.errorf(path, "unknown value %d of %s: the sender has a newer version of the API", v, fd.Enum().Name())
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			c.errorf(path, "%v is not a number", v)
		}
	}
}
