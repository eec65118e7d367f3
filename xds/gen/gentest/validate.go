package gentest

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// ValidateAll checks a message against the rules of its fields, and every message that is wrapped
// in it.
func ValidateAll(m proto.Message) error {
	var problems []error
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			problems = append(problems, err)
		}
	}
	walkMessages(m.ProtoReflect(), func(sub protoreflect.Message) {
		a, ok := sub.Interface().(*anypb.Any)
		if !ok {
			return
		}
		inner, err := a.UnmarshalNew()
		if err == nil {
			err = ValidateAll(inner)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", a.TypeUrl, err))
		}
	})
	return errors.Join(problems...)
}

// walkMessages calls f for every message within m.
func walkMessages(m protoreflect.Message, f func(protoreflect.Message)) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		visit := func(v protoreflect.Value) {
			f(v.Message())
			walkMessages(v.Message(), f)
		}
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { visit(v); return true })
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				visit(v.List().Get(i))
			}
		case fd.Message() != nil && !fd.IsMap() && !fd.IsList():
			visit(v)
		}
		return true
	})
}
