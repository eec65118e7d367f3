package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// decoder reads the values of one document into an object. It walks the text and the message's
// descriptor together, so that every problem has its line and its field. protojson would stop at the
// first error, and knows neither lines nor emptied fields.
//
// It reads what Istio reads: protobuf's JSON names (and the names of the .proto file), durations
// with any unit of time.ParseDuration, numbers in quotes. It is stricter where a mistake would be
// silent: a number is not text, a key occurs once, and enums are written by name.
type decoder struct {
	*parser
	lines lines
	about string   // Problem.Object; empty until the key is known
	path  []string // to the current value: "spec", "http", "[0]"
	// guarded says that fields that protect must not be empty; see emptied.go.
	guarded bool
}

// maxField is about how long the path in a problem may become.
const maxField = 160

// push goes to a field, or to an item or entry in brackets; pop goes back.
func (d *decoder) push(step string) { d.path = append(d.path, step) }
func (d *decoder) pop()             { d.path = d.path[:len(d.path)-1] }

// field is the path in words, "spec.http[0].match[1].headers[x-user]", cut off when it is very
// long.
func (d *decoder) field() string {
	var b strings.Builder
	for i, step := range d.path {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		if i > 0 && !strings.HasPrefix(step, "[") {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}

// errorf reports an error of the current value, which is written at n.
func (d *decoder) errorf(n *yaml.Node, format string, args ...any) {
	d.report(Problem{Severity: feed.Error, Object: d.about, Field: d.field(), Line: d.lines.line(n),
		Text: fmt.Sprintf(format, args...)})
}

// fieldErrorf is errorf for a field of the current value.
func (d *decoder) fieldErrorf(field string, n *yaml.Node, format string, args ...any) {
	d.push(field)
	d.errorf(n, format, args...)
	d.pop()
}

// unknown reports a field that the current value does not have.
func (d *decoder) unknown(key *yaml.Node, names []string) {
	d.fieldErrorf(key.Value, key, "unknown field %s%s", quote(key.Value), didYouMean(key.Value, names))
}

// visit counts one value against the limit on aliases, and says whether to go on.
func (d *decoder) visit(n *yaml.Node) bool {
	d.visits++
	if d.visits == d.maxVisits+1 {
		d.unread = true
		d.errorf(n, "aliases (*name) repeat more than %d values: write less with them, or several files", MaxAliasNodes)
	}
	return d.visits <= d.maxVisits
}

// fields calls yield for the entries of a mapping, those that "<<" merges into it last. A key that
// occurs twice is reported and given once.
func (d *decoder) fields(n *yaml.Node, yield func(key, value *yaml.Node)) {
	seen := make(map[string]int, len(n.Content)/2) // to lines
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		if !d.visit(key) {
			return
		}
		line, twice := seen[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.errorf(key, "want a name, not %s", describe(key))
		case key.Value == "<<" && key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case twice:
			hint := ""
			if len(d.path) == 0 { // two objects may have run together
				d.unread = true
				hint = ", or, if another object begins here, write --- before it"
			}
			d.fieldErrorf(key.Value, key, "%s occurs twice, in line %d too: remove one of them%s", quote(key.Value),
				line, hint)
		default:
			seen[key.Value] = d.lines.line(key)
			yield(key, value)
		}
	}
	for _, m := range merged {
		d.merge(m, seen, yield)
	}
}

// merge yields the entries of what "<<" names, where they are not overridden.
func (d *decoder) merge(m *yaml.Node, seen map[string]int, yield func(key, value *yaml.Node)) {
	sources := []*yaml.Node{m}
	if m.Kind == yaml.SequenceNode && len(m.Content) > 0 {
		sources = m.Content
	}
	for _, source := range sources {
		source = deref(source)
		if source.Kind != yaml.MappingNode || len(source.Content) == 0 {
			d.errorf(source, "only objects with fields can be merged with <<, not %s", describe(source))
			return
		}
		for i := 0; i+1 < len(source.Content); i += 2 {
			key := deref(source.Content[i])
			if !d.visit(key) {
				return
			}
			if key.Value == "<<" {
				d.errorf(key, "an object that is merged with << cannot merge others: write the fields out")
				return
			}
			if _, overridden := seen[key.Value]; key.Kind == yaml.ScalarNode && !overridden {
				seen[key.Value] = d.lines.line(key)
				yield(key, deref(source.Content[i+1]))
			}
		}
	}
}

// message reads a value into m.
func (d *decoder) message(m protoreflect.Message, n *yaml.Node) {
	if !d.visit(n) || d.wellKnown(m, n) {
		return
	}
	descriptor := m.Descriptor()
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "want an object with fields (%s), not %s", someNames(fieldNames(descriptor)), describe(n))
		return
	}
	d.fields(n, func(key, value *yaml.Node) {
		fd := descriptor.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = descriptor.Fields().ByName(protoreflect.Name(key.Value))
		}
		if fd == nil {
			d.unknown(key, fieldNames(descriptor))
			return
		}
		d.push(fd.JSONName())
		d.set(m, fd, key, value)
		d.pop()
	})
}

// set reads the value of one field. Null leaves it unset, where that is harmless.
func (d *decoder) set(m protoreflect.Message, fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	if d.guarded && guards(fd) && isEmpty(value) {
		d.errorf(key, emptiedText)
		return
	}
	if isNull(value) {
		return
	}
	if m.Has(fd) {
		d.errorf(key, "%s occurs twice, as %s and as %s: remove one of them", quote(key.Value), fd.JSONName(),
			fd.Name())
		return
	}
	if oneof := fd.ContainingOneof(); oneof != nil {
		if other := m.WhichOneof(oneof); other != nil {
			d.errorf(key, "only one of %s and %s can be set", other.JSONName(), fd.JSONName())
			return
		}
	}
	switch {
	case fd.IsMap():
		d.mapField(m, fd, value)
	case fd.IsList():
		d.listField(m, fd, value)
	default:
		if v, ok := d.value(fd, value, func() protoreflect.Value { return m.Mutable(fd) }); ok {
			m.Set(fd, v)
		}
	}
}

// value reads a single value of a field; newMessage is called for messages. It is not ok after an
// error of a scalar.
func (d *decoder) value(fd protoreflect.FieldDescriptor, n *yaml.Node,
	newMessage func() protoreflect.Value) (v protoreflect.Value, ok bool) {
	if fd.Message() == nil {
		return d.scalar(fd, n)
	}
	v = newMessage()
	d.message(v.Message(), n)
	return v, true
}

// mapField reads a map. Its keys may be written in any way: 8080 and true need no quotes.
func (d *decoder) mapField(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "want names and values, not %s", describe(n))
		return
	}
	out := m.Mutable(fd).Map()
	d.fields(n, func(keyNode, value *yaml.Node) {
		d.push("[" + keyNode.Value + "]")
		defer d.pop()
		key, ok := protoreflect.ValueOfString(keyNode.Value), true
		if fd.MapKey().Kind() != protoreflect.StringKind {
			key, ok = d.scalar(fd.MapKey(), keyNode)
		}
		switch {
		case !ok:
		case isNull(value):
			d.errorf(keyNode, "the value is missing")
		case d.guarded && guards(fd) && fd.MapValue().Message() != nil && isEmpty(value):
			d.errorf(keyNode, emptiedText)
		default:
			if v, ok := d.value(fd.MapValue(), value, out.NewValue); ok {
				out.Set(key.MapKey(), v)
			}
		}
	})
}

// listField reads a list.
func (d *decoder) listField(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		d.errorf(n, "want a list, not %s: begin each item with a dash", describe(n))
		return
	}
	if len(n.Content) > MaxItems {
		d.errorf(n, "the list has %d items, more than %d", len(n.Content), MaxItems)
		return
	}
	out := m.Mutable(fd).List()
	for i, item := range n.Content {
		d.push("[" + strconv.Itoa(i) + "]")
		item = deref(item)
		if isNull(item) {
			d.errorf(item, "the item is empty: fill it in or remove it")
		} else if v, ok := d.value(fd, item, out.NewElement); ok {
			out.Append(v)
		}
		d.pop()
	}
}

// fieldNames are the names that operators use, in the order of the description.
func fieldNames(m protoreflect.MessageDescriptor) []string {
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = m.Fields().Get(i).JSONName()
	}
	return names
}

// someNames lists the first few names.
func someNames(names []string) string {
	const few = 6
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
