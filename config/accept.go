package config

import (
	"slices"

	"google.golang.org/protobuf/proto"
)

// Accept is Parse for an object that was never text, because another program encoded its message. It
// validates o and completes it: hosts are in lower case, and Hash is set. From then on o is
// immutable. ok is false if a problem is an error; o must not take effect then.
func Accept(o *Object) (problems []Problem, ok bool) {
	if o.Spec != nil {
		if n := proto.Size(o.Spec); n > MaxFileSize {
			c := checker{object: o}
			c.errorf("", "the object has %d bytes, more than %d", n, MaxFileSize)
			return c.problems, false
		}
		lowerHosts(o.Spec.ProtoReflect())
	}
	problems = Validate(o)
	if slices.ContainsFunc(problems, Problem.IsError) {
		return problems, false
	}
	shareLabels(o)
	o.Hash = HashOf(o)
	return problems, true
}
