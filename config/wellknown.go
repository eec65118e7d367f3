package config

import (
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// wellKnown reads the messages of protobuf that JSON writes as plain values; false: m is none.
func (d *decoder) wellKnown(m protoreflect.Message, n *yaml.Node) bool {
	if m.Descriptor().ParentFile().Package() != "google.protobuf" {
		return false
	}
	switch to := m.Interface().(type) {
	case *durationpb.Duration: // "1.5s", "100ms", "1h30m"
		v, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			d.errorf(n, "want a duration such as 5s or 100ms, not %s", describe(n))
			return true
		}
		proto.Merge(to, durationpb.New(v))
	case *structpb.Struct:
		var fields map[string]any
		err := n.Decode(&fields)
		var v *structpb.Struct
		if err == nil {
			v, err = structpb.NewStruct(fields)
		}
		if err != nil {
			d.errorf(n, "want an object of texts, numbers, lists and objects: %v", err)
			return true
		}
		proto.Merge(to, v)
	default: // BoolValue, UInt32Value and their like have the one field "value"
		value := m.Descriptor().Fields().ByName("value")
		if v, ok := d.scalar(value, n); ok {
			m.Set(value, v)
		}
	}
	return true
}
