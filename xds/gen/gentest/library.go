package gentest

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// SameAsLibrary decodes a resource into m and fails unless the protobuf library would have encoded
// the same fields, be it in another order.
func SameAsLibrary(t *testing.T, r *resource.Resource, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	again := resource.Encode(m)
	if len(again) != len(r.Body()) {
		t.Fatalf("%s: %d bytes, the library makes %d", r.Name, len(r.Body()), len(again))
	}
	unknown := len(m.ProtoReflect().GetUnknown())
	walkMessages(m.ProtoReflect(), func(sub protoreflect.Message) { unknown += len(sub.GetUnknown()) })
	if unknown != 0 {
		t.Fatalf("%s: %d bytes are no fields", r.Name, unknown)
	}
}
