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
// description together, so that every problem knows its line and its field.
//
// It reads what Istio reads: protobuf's JSON names (and the names of the .proto file), durations
// with any unit of time.ParseDuration, numbers in quotes. It is stricter where a slip would be
// silent: a number is not text, a key stands once, an enum has only the values that it has, by
// their names.
type decoder struct {
	*parser
	lines lines
	about string // Problem.Object; empty until the key is known
	path  []step // to the value at hand
	// guarded says that fields that protect must not be empty; see checkEmpty.
	guarded bool
	empty   []Problem // the fields of which that is so
	doubled int       // keys that stood twice
	refused refusals
}

// step is one step of a path.
type step struct {
	name  string
	index int // of a list; -1 otherwise
	key   bool
}

// maxField is about how long the path in a problem may become.
const maxField = 160

// at goes to a field, key to an entry of a map, index to an item; pop goes back.
func (d *decoder) at(name string) *decoder {
	d.path = append(d.path, step{name: name, index: -1})
	return d
}
func (d *decoder) key(name string) {
	d.path = append(d.path, step{name: name, index: -1, key: true})
}
func (d *decoder) index(i int) { d.path = append(d.path, step{index: i}) }
func (d *decoder) pop()        { d.path = d.path[:len(d.path)-1] }

// field is the path in words, "spec.http[0].match[1].headers[x-user]", cut off when it is very
// long.
func (d *decoder) field() string { return pathText(d.path, maxField) }

// pathText is a path in words, cut off when it is longer than most; 0: however long it is.
func pathText(path []step, most int) string {
	var b strings.Builder
	for i, s := range path {
		if most > 0 && b.Len() > most {
			b.WriteString("…")
			break
		}
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case s.key:
			b.WriteString("[" + s.name + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// errorf reports an error of the value at hand, which is written at n.
func (d *decoder) errorf(n *yaml.Node, format string, args ...any) {
	d.note()
	d.report(Problem{Severity: feed.Error, Object: d.about, Field: d.field(), Line: d.lines.line(n),
		Text: fmt.Sprintf(format, args...)})
}

// unknown reports a field that the value at hand does not have.
func (d *decoder) unknown(key *yaml.Node, names []string) {
	d.at(key.Value).errorf(key, "unknown field %s%s", quote(key.Value), didYouMean(key.Value, names))
	d.doubt(d.path, true) // whatever it was to be
	d.pop()
}

// visit counts one value against the limits, and says whether to go on.
func (d *decoder) visit(n *yaml.Node) bool {
	d.visits++
	if d.visits > d.maxVisits {
		if d.visits == d.maxVisits+1 {
			d.unread = true
			d.errorf(n, "aliases (*name) repeat more than %d values: write less with them, or several files",
				MaxAliasNodes)
		}
		return false
	}
	if d.over(len(d.path), MaxDepth) {
		d.errorf(n, "values nest deeper than %d levels", MaxDepth)
		return false
	}
	return true
}

// fields calls yield for the entries of a mapping, those that "<<" merges into it last. A key that
// stands twice is reported and given once.
func (d *decoder) fields(n *yaml.Node, yield func(key, value *yaml.Node)) {
	seen := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), n.Content[i+1]
		if !d.visit(key) {
			return
		}
		if key.Kind != yaml.ScalarNode {
			d.errorf(key, "want a name, not %s", describe(key))
			continue
		}
		if key.Value == "<<" && key.ShortTag() == "!!merge" {
			merged = append(merged, deref(value))
			continue
		}
		if line, twice := seen[key.Value]; twice {
			d.doubled++
			d.at(key.Value).errorf(key, "%s stands twice, in line %d too: remove one of them%s", quote(key.Value), line,
				d.orApart())
			d.pop()
			continue
		}
		seen[key.Value] = d.lines.line(key)
		yield(key, value)
	}
	for _, m := range merged {
		d.merge(m, seen, yield)
	}
}

// orApart is what may help besides where a key stands twice: at the outermost level two objects may
// have run together.
func (d *decoder) orApart() string {
	if len(d.path) > 1 {
		return ""
	}
	return ", or, if another object begins here, write --- before it"
}

// merge yields the entries of what "<<" names, where they are not overridden.
func (d *decoder) merge(m *yaml.Node, seen map[string]int, yield func(key, value *yaml.Node)) {
	sources := []*yaml.Node{m}
	if m.Kind == yaml.SequenceNode {
		sources = m.Content
	}
	if d.guarded && isEmpty(m) {
		d.errorf(m, "there is nothing to merge with <<: remove it, or name what has fields")
		return
	}
	for _, source := range sources {
		source = deref(source)
		if source.Kind != yaml.MappingNode {
			d.errorf(source, "only objects can be merged with <<, not %s", describe(source))
			return
		}
		d.path = append(d.path, step{name: "<<", index: -1})
		within := map[string]bool{}
		d.fields(source, func(key, value *yaml.Node) {
			if _, overridden := seen[key.Value]; overridden || within[key.Value] {
				return
			}
			within[key.Value] = true
			// what is merged belongs to the object around it
			d.pop()
			yield(key, value)
			d.path = append(d.path, step{name: "<<", index: -1})
		})
		for key := range within {
			seen[key] = 0
		}
		d.pop()
	}
}

// message reads a value into m.
func (d *decoder) message(m protoreflect.Message, n *yaml.Node) {
	n = deref(n)
	if !d.visit(n) || d.wellKnown(m, n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "want an object with fields (%s), not %s", someNames(fieldNames(m.Descriptor())), describe(n))
		return
	}
	descriptor := m.Descriptor()
	d.fields(n, func(key, value *yaml.Node) {
		fd := descriptor.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = descriptor.Fields().ByName(protoreflect.Name(key.Value))
		}
		if fd == nil {
			d.unknown(key, fieldNames(descriptor))
			return
		}
		d.at(fd.JSONName())
		d.set(m, fd, key, value)
		d.pop()
	})
}

// set reads the value of one field. Null leaves it unset, where that is harmless.
func (d *decoder) set(m protoreflect.Message, fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	value = deref(value)
	d.checkEmpty(fd, key, value)
	if isNull(value) && !acceptsNull(fd) {
		return
	}
	if m.Has(fd) {
		d.errorf(key, "%s stands twice, as %s and as %s: remove one of them", quote(key.Value), fd.JSONName(),
			fd.Name())
		return
	}
	if oneof := fd.ContainingOneof(); oneof != nil {
		if other := m.WhichOneof(oneof); other != nil {
			d.errorf(key, "only one of %s and %s can be set", other.JSONName(), fd.JSONName())
			return
		}
	}
	before := len(d.refused.paths)
	defer func() { d.noteMeant(fd, before) }()
	switch {
	case fd.IsMap():
		d.mapField(m, fd, value)
	case fd.IsList():
		d.listField(m, fd, value)
	case fd.Message() != nil:
		d.message(m.Mutable(fd).Message(), value)
	default:
		if v, ok := d.scalar(fd, value); ok {
			m.Set(fd, v)
		}
	}
}

// mapField reads a map.
func (d *decoder) mapField(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "want names and values, not %s", describe(n))
		return
	}
	out := m.Mutable(fd).Map()
	d.fields(n, func(keyNode, value *yaml.Node) {
		d.key(keyNode.Value)
		defer d.pop()
		key, ok := d.mapKey(fd.MapKey(), keyNode)
		if !ok {
			return
		}
		if value = deref(value); isNull(value) {
			d.errorf(keyNode, "the value is missing")
			return
		}
		d.checkEmptyEntry(fd, keyNode, value)
		if fd.MapValue().Message() != nil {
			v := out.NewValue()
			d.message(v.Message(), value)
			out.Set(key, v)
			return
		}
		if v, ok := d.scalar(fd.MapValue(), value); ok {
			out.Set(key, v)
		}
	})
}

// listField reads a list.
func (d *decoder) listField(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		d.errorf(n, "want a list, not %s: begin each item with a dash", describe(n))
		return
	}
	if d.over(len(n.Content), MaxItems) {
		d.errorf(n, "the list has %d items, more than %d", len(n.Content), MaxItems)
		return
	}
	out := m.Mutable(fd).List()
	for i, item := range n.Content {
		d.index(i)
		d.item(out, fd, deref(item))
		d.pop()
	}
}

// item reads one item of a list.
func (d *decoder) item(out protoreflect.List, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	switch {
	case isNull(n) && !acceptsNull(fd):
		if d.visit(n) {
			d.errorf(n, "the item is empty: fill it in or remove it")
		}
	case fd.Message() != nil:
		v := out.NewElement()
		d.message(v.Message(), n)
		out.Append(v)
	default:
		if v, ok := d.scalar(fd, n); ok {
			out.Append(v)
		}
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
