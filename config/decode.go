package config

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// decoder reads the values of one document into an object. It walks over the YAML and the message
// side by side, so that each problem has the line of its value. Names and values are those of
// protobuf's JSON, with two exceptions: durations have any unit, as in Istio, and enum values have
// no numbers.
type decoder struct {
	*parser
	root  *yaml.Node // the document
	where fieldLines // of what was read
	about string     // Problem.Object; empty until the key is known
	// guarded says that fields that protect must not be empty; see guards.
	guarded bool
}

// maxField is about how long the path in a problem may become.
const maxField = 160

// errorf reports an error of the field at path, which is written at n.
func (d *decoder) errorf(path string, n *yaml.Node, format string, args ...any) {
	if len(path) > maxField {
		path = path[:maxField] + "…"
	}
	d.report(Problem{Severity: feed.Error, Object: d.about, Field: strings.ToValidUTF8(path, ""),
		Line: n.Line, Text: fmt.Sprintf(format, args...)})
}

// unknown reports a field that does not exist.
func (d *decoder) unknown(path string, key *yaml.Node, names []string) {
	d.errorf(below(path, key.Value), key, "unknown field %s%s", quote(key.Value), didYouMean(key.Value, names))
}

// below is the path of a field of the object at path.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// mismatch reports a single value of the wrong type.
func (d *decoder) mismatch(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	hint := ""
	switch {
	case fd.Enum() != nil:
		hint = didYouMean(n.Value, EnumNames(fd.Enum()))
	case fd.Kind() == protoreflect.StringKind && n.Kind == yaml.ScalarNode:
		hint = ": put it in quotes"
	}
	d.errorf(path, n, "want %s, not %s%s", wanted(fd), describe(n), hint)
}

// wanted says what a single value of a field is.
func wanted(fd protoreflect.FieldDescriptor) string {
	if isWrapper(fd.Message()) {
		fd = fd.Message().Fields().ByName("value")
	}
	switch kind := fd.Kind(); {
	case isDuration(fd.Message()):
		return "a duration such as 5s or 100ms"
	case fd.Message() != nil:
		return "an object with fields (" + fewNames(fd.Message().Fields()) + ")"
	case fd.Enum() != nil:
		return "one of " + strings.Join(EnumNames(fd.Enum()), ", ")
	case kind == protoreflect.StringKind:
		return "text"
	case kind == protoreflect.BoolKind:
		return "true or false"
	case kind == protoreflect.BytesKind:
		return "base64"
	case kind == protoreflect.DoubleKind:
		return "a number"
	case kind == protoreflect.Uint32Kind:
		return "a whole number from 0 to 4294967295"
	case kind == protoreflect.Int32Kind:
		return "a whole number from -2147483648 to 2147483647"
	default:
		return "a whole number of 64 bits"
	}
}

// message reads the object at n into m.
func (d *decoder) message(path string, m protoreflect.Message, n *yaml.Node) {
	md := m.Descriptor()
	if n.Kind != yaml.MappingNode {
		d.errorf(path, n, "want an object with fields (%s), not %s", fewNames(md.Fields()), describe(n))
		return
	}
	seen := map[protoreflect.FieldDescriptor]bool{}
	d.fields(path, n, func(key, value *yaml.Node) {
		fd := md.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(key.Value))
		}
		if fd == nil {
			d.unknown(path, key, fieldNames(md.Fields()))
			return
		}
		path := below(path, fd.JSONName())
		d.where[path] = key.Line
		oneof := fd.ContainingOneof()
		switch {
		case d.guarded && guards(fd) && isEmpty(value):
			d.errorf(path, key, emptiedText)
		case isNull(value): // unset
		case seen[fd]: // by its other name
			d.errorf(path, key, "%s occurs twice: remove one of them", quote(key.Value))
		case oneof != nil && m.WhichOneof(oneof) != nil:
			d.errorf(path, key, "only one of %s can be set", fewNames(oneof.Fields()))
		default:
			seen[fd] = true
			d.field(path, m, fd, value)
		}
	})
}

// field reads the value of a field into m.
func (d *decoder) field(path string, m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	switch {
	case fd.IsMap() && n.Kind == yaml.MappingNode:
		entries := m.Mutable(fd).Map()
		d.fields(path, n, func(key, value *yaml.Node) {
			d.entry(entry(path, shorten(key.Value)), entries, fd, key, value)
		})
	case fd.IsMap():
		d.errorf(path, n, "want names and values, not %s", describe(n))
	case fd.IsList() && n.Kind != yaml.SequenceNode:
		d.errorf(path, n, "want a list, not %s: begin each item with a dash", describe(n))
	case fd.IsList() && len(n.Content) > MaxItems:
		d.errorf(path, n, "the list has %d items, more than %d", len(n.Content), MaxItems)
	case fd.IsList():
		list := m.Mutable(fd).List()
		for i, item := range n.Content {
			path := at(path, i)
			d.where[path] = item.Line
			item = deref(item)
			if isNull(item) {
				d.errorf(path, item, "the item is empty: fill it in or remove it")
			} else if v := d.value(path, fd, item, list.NewElement); v.IsValid() {
				list.Append(v)
			}
		}
	default:
		if v := d.value(path, fd, n, func() protoreflect.Value { return m.NewField(fd) }); v.IsValid() {
			m.Set(fd, v)
		}
	}
}

// entry reads an entry of a map. Keys may be written in any way: 8080 needs no quotes.
func (d *decoder) entry(path string, m protoreflect.Map, fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	d.where[path] = key.Line
	if isNull(value) {
		d.errorf(path, key, "the value is missing")
		return
	}
	k := protoreflect.ValueOfString(key.Value)
	if fd.MapKey().Kind() != protoreflect.StringKind {
		k = d.value(path, fd.MapKey(), key, fd.MapKey().Default)
	}
	if v := d.value(path, fd.MapValue(), value, m.NewValue); v.IsValid() && k.IsValid() {
		m.Set(k.MapKey(), v)
	}
}

// value reads a single value of a field. It is not valid if there was a problem with all of it.
func (d *decoder) value(path string, fd protoreflect.FieldDescriptor, n *yaml.Node,
	empty func() protoreflect.Value) (v protoreflect.Value) {
	switch md := fd.Message(); {
	case isDuration(md):
		if t, err := time.ParseDuration(n.Value); err == nil {
			v = protoreflect.ValueOfMessage(durationpb.New(t).ProtoReflect())
		}
	case md != nil && md.ParentFile().Package() != "google.protobuf":
		v = empty()
		d.message(path, v.Message(), n)
	case isWrapper(md):
		inside, wrapper := md.Fields().ByName("value"), empty()
		if x := scalar(inside, n, wrapper.Message().Get(inside)); x.IsValid() {
			v = wrapper
			v.Message().Set(inside, x)
		}
	case md != nil: // Struct
		var plain map[string]any
		if n.Decode(&plain) == nil {
			if s, err := structpb.NewStruct(plain); err == nil {
				v = protoreflect.ValueOfMessage(s.ProtoReflect())
				d.where.note(path, n)
			}
		}
	default:
		v = scalar(fd, n, empty())
	}
	if !v.IsValid() {
		d.mismatch(path, fd, n)
	}
	return v
}

// scalar reads a value of the type of zero. It is not valid if n is not of that type.
func scalar(fd protoreflect.FieldDescriptor, n *yaml.Node, zero protoreflect.Value) (v protoreflect.Value) {
	kind, plain := fd.Kind(), *n
	isText := n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp"
	switch {
	case n.Kind != yaml.ScalarNode, kind == protoreflect.StringKind && !isText,
		kind == protoreflect.BoolKind && n.ShortTag() != "!!bool":
		return v
	case kind == protoreflect.EnumKind:
		if e := fd.Enum().Values().ByName(protoreflect.Name(n.Value)); e != nil {
			v = protoreflect.ValueOfEnum(e.Number())
		}
		return v
	case kind == protoreflect.BytesKind:
		if b, err := base64.StdEncoding.DecodeString(n.Value); err == nil {
			v = protoreflect.ValueOfBytes(b)
		}
		return v
	case kind != protoreflect.StringKind: // a number may stand in quotes
		plain.Tag, plain.Style = "", 0
	}
	if tag := plain.ShortTag(); tag == "!!null" || tag == "!!float" && kind != protoreflect.DoubleKind {
		return v
	}
	x := reflect.New(reflect.TypeOf(zero.Interface()))
	if plain.Decode(x.Interface()) == nil {
		v = protoreflect.ValueOf(x.Elem().Interface())
	}
	if f, ok := x.Interface().(*float64); ok && (math.IsInf(*f, 0) || math.IsNaN(*f)) {
		return protoreflect.Value{}
	}
	return v
}

func isDuration(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.FullName() == "google.protobuf.Duration"
}

// isWrapper says that a message is BoolValue, UInt32Value or one of their like.
func isWrapper(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

// fields calls yield for the entries of a mapping, those that "<<" merges into it last. A key that
// occurs twice is reported and given once.
func (d *decoder) fields(path string, n *yaml.Node, yield func(key, value *yaml.Node)) {
	seen := make(map[string]int, len(n.Content)/2) // to lines
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		line, twice := seen[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.errorf(path, key, "want a name, not %s", describe(key))
		case key.Value == "<<" && key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case twice:
			hint := ""
			if path == "" { // two objects may have run together
				d.unread = true
				hint = ", or, if another object begins here, write --- before it"
			}
			d.errorf(below(path, key.Value), key, "%s occurs twice, in line %d too: remove one of them%s",
				quote(key.Value), line, hint)
		default:
			seen[key.Value] = key.Line
			yield(key, value)
		}
	}
	for _, m := range merged {
		d.merge(path, m, seen, yield)
	}
}

// merge yields the entries of what "<<" names, where they are not overridden.
func (d *decoder) merge(path string, m *yaml.Node, seen map[string]int, yield func(key, value *yaml.Node)) {
	if m.Kind != yaml.MappingNode || len(m.Content) == 0 {
		d.errorf(path, m, "only one object with fields can be merged with <<, not %s", describe(m))
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := deref(m.Content[i]), deref(m.Content[i+1])
		if key.Value == "<<" {
			d.errorf(path, key, "an object that is merged with << cannot merge others: write the fields out")
			return
		}
		if _, overridden := seen[key.Value]; key.Kind == yaml.ScalarNode && !overridden {
			yield(key, value)
		}
	}
}

// fieldNames are the names that operators use, in the order of the description.
func fieldNames(fields protoreflect.FieldDescriptors) []string {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = fields.Get(i).JSONName()
	}
	return names
}

// EnumNames are the values of an enumeration that are accepted, in the order of the API.
func EnumNames(e protoreflect.EnumDescriptor) (names []string) {
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if refused, _ := unsupportedValue(v); refused == "" && v.Name() != "INVALID" {
			names = append(names, string(v.Name()))
		}
	}
	return names
}

// fewNames lists the first few fields.
func fewNames(fields protoreflect.FieldDescriptors) string {
	const few = 6
	names := fieldNames(fields)
	if len(names) > few {
		names = append(names[:few], "…")
	}
	return strings.Join(names, ", ")
}

// readText reads a text outside the specification. A plain number or truth value is refused: its
// spelling (1.10, 0x1, yes) would not survive programs that read it as what it looks like.
func (d *decoder) readText(path string, n *yaml.Node) (string, bool) {
	if n.Kind == yaml.ScalarNode {
		switch n.ShortTag() {
		case "!!str", "!!timestamp":
			return n.Value, true
		case "!!int", "!!float", "!!bool":
			d.errorf(path, n, "want text, not %s: put it in quotes", describe(n))
			return "", false
		}
	}
	d.errorf(path, n, "want text, not %s", describe(n))
	return "", false
}

// shapeOf says what stands at n, without its text.
func shapeOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	return "text"
}

// describe says what stands at n, for the end of "want …, not …".
func describe(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		return shapeOf(n)
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + shorten(n.Value)
	case "!!bool":
		return shorten(n.Value)
	default:
		return quote(n.Value)
	}
}

// quote puts text that someone wrote into a message: in quotes, and not too long.
func quote(s string) string { return strconv.Quote(shorten(s)) }

// shorten cuts text that is too long for a message.
func shorten(s string) string { return excerpt.Of(s, 80) }
