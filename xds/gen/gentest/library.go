package gentest

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

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
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if p.Index(-1).Step.Kind() == protopath.UnknownAccessStep {
			return fmt.Errorf("%v is no field", p.Path)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
}
