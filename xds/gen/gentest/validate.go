package gentest

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// ValidateAll checks a message against the rules of its fields, and every message that is wrapped
// in it.
func ValidateAll(m proto.Message) error {
	var problems []error
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		at := p.Index(-1)
		if kind := at.Step.Kind(); kind != protopath.RootStep && kind != protopath.AnyExpandStep {
			return nil
		}
		if v, ok := at.Value.Message().Interface().(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				problems = append(problems, fmt.Errorf("%v: %w", p.Path, err))
			}
		}
		return nil
	})
	return errors.Join(append(problems, err)...)
}
