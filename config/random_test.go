package config

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	mesh "istio.io/api/mesh/v1alpha1"
)

// random fills messages with values of every kind that their description allows.
type random struct{ *rand.Rand }

func (r random) message(m protoreflect.Message, depth int) {
	switch m.Interface().(type) {
	case *durationpb.Duration:
		m.Set(m.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(r.Int64N(1000)))
		m.Set(m.Descriptor().Fields().ByName("nanos"), protoreflect.ValueOfInt32(r.Int32N(1_000_000_000)))
		return
	case *structpb.Value:
		m.Set(m.Descriptor().Fields().ByName("string_value"), r.scalar(m.Descriptor().Fields().ByName("string_value")))
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		deep := fd.Message() != nil && !fd.IsMap() && depth == 0
		if oneof := fd.ContainingOneof(); deep || r.IntN(2) == 0 || oneof != nil && m.WhichOneof(oneof) != nil {
			continue
		}
		r.field(m, fd, depth)
	}
}

func (r random) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	value := func(fd protoreflect.FieldDescriptor, fresh func() protoreflect.Value) protoreflect.Value {
		if fd.Message() == nil {
			return r.scalar(fd)
		}
		v := fresh()
		r.message(v.Message(), depth-1)
		return v
	}
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() != nil && depth == 0 {
			return
		}
		for range r.IntN(3) {
			entries := m.Mutable(fd).Map()
			entries.Set(r.scalar(fd.MapKey()).MapKey(), value(fd.MapValue(), entries.NewValue))
		}
	case fd.IsList():
		for range r.IntN(3) {
			items := m.Mutable(fd).List()
			items.Append(value(fd, items.NewElement))
		}
	case fd.Message() != nil:
		r.message(m.Mutable(fd).Message(), depth-1)
	default:
		m.Set(fd, r.scalar(fd))
	}
}

func (r random) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		texts := []string{"", "a", "80", "true", "null", "1.10", "a b", "ä\n\t\"\\", "\U0001F600", "<<", "*", "- x",
			"x: y", "2024-05-06"}
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(r.IntN(256)), 0xff, byte(r.IntN(256))}[:r.IntN(4)])
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(r.IntN(fd.Enum().Values().Len())).Number())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(r.NormFloat64() * 1e6)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(r.Float32())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(r.Uint32()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(r.Uint32())
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(r.Uint64()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(r.Uint64())
	default:
		panic(fmt.Sprintf("no random value for %s, a %s", fd.FullName(), fd.Kind()))
	}
}

// Whatever protobuf's own JSON writer makes of a message of Istio's API is read as the same
// message, as JSON and as the YAML that Encode makes of it. No valid object is out of the reader's
// reach.
func TestReadsWhatProtobufWrites(t *testing.T) {
	t.Parallel()
	messages := []proto.Message{&mesh.MeshConfig{}}
	for _, info := range Kinds() {
		if info.Supported {
			messages = append(messages, info.NewSpec())
		}
	}
	for _, m := range messages {
		t.Run(string(m.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(30) {
				want := m.ProtoReflect().New()
				random{rand.New(rand.NewPCG(seed, 0))}.message(want, 5)
				readBack(t, seed, want)
			}
		})
	}
}

func readBack(t *testing.T, seed uint64, want protoreflect.Message) {
	t.Helper()
	text, err := protojson.Marshal(want.Interface())
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	asJSON, err := nodeOf(text)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	text, err = yaml.Marshal(asJSON)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	var asYAML yaml.Node
	if err := yaml.Unmarshal(text, &asYAML); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, node := range []*yaml.Node{asJSON, asYAML.Content[0]} {
		got := want.New()
		d := &decoder{parser: &parser{}, root: node, where: fieldLines{}}
		d.message("", got, node)
		for _, p := range d.problems {
			t.Fatalf("seed %d: %s in\n%s", seed, p, text)
		}
		if diff := cmp.Diff(want.Interface(), got.Interface(), protocmp.Transform()); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
