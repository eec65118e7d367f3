package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// decoder reads the values of one document into an object. It writes a specification as protobuf's
// JSON and lets protojson read that.
//
// While it writes, it reports what protojson would accept or report without a hint: unknown fields,
// fields that occur twice, fields that protect and are empty, numbers of enum values. It also reads
// durations in any unit, as Istio does. protojson checks types and ranges. Its error has a line of
// the JSON, and every value stands on a line of its own, so the line leads back to the YAML.
type decoder struct {
	*parser
	lines lines
	about string // Problem.Object; empty until the key is known
	// guarded says that fields that protect must not be empty; see guards.
	guarded bool

	json   bytes.Buffer
	tokens []token // by line of json
	quiet  bool    // what is found was reported before
}

// token is a key or value that was written as JSON.
type token struct {
	path  string
	field protoreflect.FieldDescriptor
	node  *yaml.Node
	key   bool
}

// maxField is about how long the path in a problem may become.
const maxField = 160

// errorf reports an error of the field at path, which is written at n.
func (d *decoder) errorf(path string, n *yaml.Node, format string, args ...any) {
	if d.quiet {
		return
	}
	if len(path) > maxField {
		path = path[:maxField] + "…"
	}
	d.report(Problem{Severity: feed.Error, Object: d.about, Field: strings.ToValidUTF8(path, ""),
		Line: d.lines.line(n), Text: fmt.Sprintf(format, args...)})
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

// maxTypeErrors is how many values of a wrong type are reported of one object.
const maxTypeErrors = 20

// decode reads the object at n into m. It replaces values of the wrong type by null, to find others.
func (d *decoder) decode(path string, m proto.Message, n *yaml.Node) {
	defer func() { d.quiet = false }()
	for range maxTypeErrors {
		d.json.Reset()
		d.tokens = nil
		d.writeObject(path, m.ProtoReflect().Descriptor(), deref(n))
		err := protojson.Unmarshal(d.json.Bytes(), m)
		if err == nil {
			return
		}
		d.quiet = false
		bad := d.typeError(path, n, err)
		if bad == nil {
			return
		}
		*bad = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: bad.Line}
		d.quiet = true // the other problems are reported
	}
}

// typeError reports an error of protojson, and returns the value that it is about; nil if unknown.
func (d *decoder) typeError(path string, n *yaml.Node, err error) *yaml.Node {
	at := regexp.MustCompile(`\(line (\d+):`).FindStringSubmatch(err.Error())
	if at == nil || len(d.tokens) == 0 {
		d.errorf(path, n, "%s", err)
		return nil
	}
	line, _ := strconv.Atoi(at[1])            // digits
	i := min(max(line-2, 0), len(d.tokens)-1) // the first token stands on line 2
	t := d.tokens[i]
	if !t.key {
		d.mismatch(t.path, t.field, t.node)
		return t.node
	}
	if oneof := t.field.ContainingOneof(); oneof != nil {
		d.errorf(t.path, t.node, "only one of %s can be set", fewNames(oneof.Fields()))
	} else {
		d.errorf(t.path, t.node, "%s occurs twice: remove one of them", quote(t.node.Value))
	}
	return d.tokens[i+1].node
}

// mismatch reports a single value of the wrong type.
func (d *decoder) mismatch(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	hint := ""
	switch {
	case fd.Enum() != nil:
		hint = didYouMean(n.Value, enumNames(fd.Enum()))
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
		return "one of " + strings.Join(enumNames(fd.Enum()), ", ")
	case kind == protoreflect.StringKind:
		return "text"
	case kind == protoreflect.BoolKind:
		return "true or false"
	case kind == protoreflect.BytesKind:
		return "base64"
	case isFloat(fd):
		return "a number"
	case kind == protoreflect.Uint32Kind:
		return "a whole number from 0 to 4294967295"
	case kind == protoreflect.Int32Kind:
		return "a whole number from -2147483648 to 2147483647"
	default:
		return "a whole number of 64 bits"
	}
}

// writeField writes the value of a field.
func (d *decoder) writeField(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	switch {
	case !fd.IsMap() && !fd.IsList():
		d.writeValue(path, fd, n)
	case fd.IsMap() && n.Kind == yaml.MappingNode:
		d.json.WriteByte('{')
		d.fields(path, n, func(key, value *yaml.Node) { d.writeEntry(entry(path, shorten(key.Value)), fd, key, value) })
		d.close('}')
	case fd.IsList() && n.Kind == yaml.SequenceNode:
		d.writeList(path, fd, n)
	case fd.IsMap():
		d.errorf(path, n, "want names and values, not %s", describe(n))
		d.json.WriteString("null")
	default:
		d.errorf(path, n, "want a list, not %s: begin each item with a dash", describe(n))
		d.json.WriteString("null")
	}
}

// writeObject writes an object with the fields of a message.
func (d *decoder) writeObject(path string, md protoreflect.MessageDescriptor, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.errorf(path, n, "want an object with fields (%s), not %s", fewNames(md.Fields()), describe(n))
		d.json.WriteString("{}")
		return
	}
	d.json.WriteByte('{')
	d.fields(path, n, func(key, value *yaml.Node) {
		fd := md.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(key.Value))
		}
		switch {
		case fd == nil:
			d.unknown(path, key, fieldNames(md.Fields()))
		case d.guarded && guards(fd) && isEmpty(value):
			d.errorf(below(path, fd.JSONName()), key, emptiedText)
		case isNull(value): // unset
		default:
			path := below(path, fd.JSONName())
			d.begin(token{path, fd, key, true})
			d.writeText(fd.JSONName())
			d.json.WriteByte(':')
			d.begin(token{path, fd, value, false})
			d.writeField(path, fd, value)
			d.json.WriteByte(',')
		}
	})
	d.close('}')
}

// writeEntry writes an entry of a map field. Keys may be written in any way: 8080 needs no quotes.
func (d *decoder) writeEntry(path string, fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	switch {
	case isNull(value):
		d.errorf(path, key, "the value is missing")
	case d.guarded && guards(fd) && fd.MapValue().Message() != nil && isEmpty(value):
		d.errorf(path, key, emptiedText)
	default:
		d.begin(token{path, fd.MapKey(), key, false})
		d.writeText(key.Value)
		d.json.WriteByte(':')
		d.begin(token{path, fd.MapValue(), value, false})
		d.writeValue(path, fd.MapValue(), value)
		d.json.WriteByte(',')
	}
}

// writeList writes a list.
func (d *decoder) writeList(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	if len(n.Content) > MaxItems {
		d.errorf(path, n, "the list has %d items, more than %d", len(n.Content), MaxItems)
		d.json.WriteString("null")
		return
	}
	d.json.WriteByte('[')
	for i, item := range n.Content {
		item, path := deref(item), at(path, i)
		if isNull(item) {
			d.errorf(path, item, "the item is empty: fill it in or remove it")
			continue
		}
		d.begin(token{path, fd, item, false})
		d.writeValue(path, fd, item)
		d.json.WriteByte(',')
	}
	d.close(']')
}

// writeValue writes a single value of a field.
func (d *decoder) writeValue(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	md := fd.Message()
	switch {
	case isDuration(md):
		v, err := time.ParseDuration(n.Value)
		if err != nil {
			d.mismatch(path, fd, n)
		}
		b, _ := protojson.Marshal(durationpb.New(v)) // every time.Duration is within protobuf's range
		d.json.Write(b)
	case md != nil && md.ParentFile().Package() != "google.protobuf":
		d.writeObject(path, md, n)
	case fd.Enum() != nil && n.ShortTag() == "!!int", isFloat(fd) && strings.ContainsAny(n.Value, "NI"):
		d.mismatch(path, fd, n) // protojson takes numbers of enum values, and "NaN"
		d.json.WriteString("null")
	default:
		d.writePlain(path, fd, n)
	}
}

// writePlain writes a value as it is written, whatever the field.
func (d *decoder) writePlain(path string, fd protoreflect.FieldDescriptor, n *yaml.Node) {
	var v any
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		v = n.Value
	case "!!int", "!!float":
		if v = json.Number(n.Value); !json.Valid([]byte(n.Value)) {
			v = n.Value // such as 0x50: protojson says no
		}
	default:
		if err := n.Decode(&v); err != nil {
			d.mismatch(path, fd, n)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		d.mismatch(path, fd, n)
		b = []byte("null")
	}
	d.json.Write(b)
}

// begin starts a line of the JSON for a key or value.
func (d *decoder) begin(t token) {
	d.json.WriteByte('\n')
	d.tokens = append(d.tokens, t)
}

// close ends an object or list. JSON has no comma behind the last item.
func (d *decoder) close(bracket byte) {
	if last := d.json.Len() - 1; d.json.Bytes()[last] == ',' {
		d.json.Truncate(last)
	}
	d.json.WriteByte(bracket)
}

// writeText writes a text. A line end within it is written as \n, so it does not begin a line.
func (d *decoder) writeText(s string) {
	b, _ := json.Marshal(s) // a text is always JSON
	d.json.Write(b)
}

func isDuration(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.FullName() == "google.protobuf.Duration"
}

// isWrapper says that a message is BoolValue, UInt32Value or one of their like.
func isWrapper(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

func isFloat(fd protoreflect.FieldDescriptor) bool {
	if isWrapper(fd.Message()) {
		fd = fd.Message().Fields().ByName("value")
	}
	return fd.Kind() == protoreflect.DoubleKind || fd.Kind() == protoreflect.FloatKind
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
			seen[key.Value] = d.lines.line(key)
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

func enumNames(e protoreflect.EnumDescriptor) []string {
	names := make([]string, e.Values().Len())
	for i := range names {
		names[i] = string(e.Values().Get(i).Name())
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
