package config

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// scalar reads one value that is not an object. It is not ok after an error, which is reported.
func (d *decoder) scalar(fd protoreflect.FieldDescriptor, n *yaml.Node) (v protoreflect.Value, ok bool) {
	if !d.visit(n) {
		return v, false
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		s, ok := d.text(n)
		return protoreflect.ValueOfString(s), ok
	case protoreflect.BoolKind:
		b, ok := d.boolean(n)
		return protoreflect.ValueOfBool(b), ok
	case protoreflect.EnumKind:
		return d.enum(fd.Enum(), n)
	case protoreflect.BytesKind:
		return d.bytes(n)
	default:
		return d.number(fd.Kind(), n)
	}
}

// text reads a string. A plain number or truth value is refused: its spelling (1.10, 0x1, yes)
// would not survive programs that read it as what it looks like.
func (d *decoder) text(n *yaml.Node) (string, bool) {
	if n.Kind == yaml.ScalarNode {
		switch n.ShortTag() {
		case "!!str", "!!timestamp":
			if !utf8.ValidString(n.Value) {
				d.errorf(n, "the text is not UTF-8")
				return "", false
			}
			return n.Value, true
		case "!!int", "!!float", "!!bool":
			d.errorf(n, "want text, not %s: put it in quotes", describe(n))
			return "", false
		}
	}
	d.errorf(n, "want text, not %s", describe(n))
	return "", false
}

func (d *decoder) boolean(n *yaml.Node) (value, ok bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		return strings.EqualFold(n.Value, "true"), true
	}
	d.errorf(n, "want true or false, not %s", describe(n))
	return false, false
}

// enum reads the name of an enum's value. Its number is refused: nobody sees that mode: 0 asks for
// nothing.
func (d *decoder) enum(e protoreflect.EnumDescriptor, n *yaml.Node) (v protoreflect.Value, ok bool) {
	if n.Kind == yaml.ScalarNode {
		if value := e.Values().ByName(protoreflect.Name(n.Value)); value != nil {
			return protoreflect.ValueOfEnum(value.Number()), true
		}
	}
	names := make([]string, e.Values().Len())
	for i := range names {
		names[i] = string(e.Values().Get(i).Name())
	}
	if i, err := strconv.ParseInt(n.Value, 10, 32); err == nil {
		if value := e.Values().ByNumber(protoreflect.EnumNumber(i)); value != nil {
			d.errorf(n, "want a name, not %s, which is %s: write one of %s", describe(n), value.Name(),
				strings.Join(names, ", "))
			return v, false
		}
	}
	d.errorf(n, "want one of %s, not %s%s", strings.Join(names, ", "), describe(n), didYouMean(n.Value, names))
	return v, false
}

func (d *decoder) bytes(n *yaml.Node) (v protoreflect.Value, ok bool) {
	text, ok := d.text(n)
	if !ok {
		return v, false
	}
	// as protojson: of both alphabets, with padding or without
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		d.errorf(n, "not base64: %s", err)
		return v, false
	}
	return protoreflect.ValueOfBytes(b), true
}

// number reads a number, which may be in quotes.
func (d *decoder) number(kind protoreflect.Kind, n *yaml.Node) (v protoreflect.Value, ok bool) {
	text := strings.ReplaceAll(n.Value, "_", "")
	want := "a number"
	var err error
	switch kind {
	case protoreflect.Int32Kind:
		var i int64
		i, err = strconv.ParseInt(text, 0, 32)
		v, want = protoreflect.ValueOfInt32(int32(i)), "a whole number within -2147483648 to 2147483647"
	case protoreflect.Uint32Kind:
		var u uint64
		u, err = strconv.ParseUint(text, 0, 32)
		v, want = protoreflect.ValueOfUint32(uint32(u)), "a whole number within 0 to 4294967295"
	case protoreflect.Int64Kind:
		var i int64
		i, err = strconv.ParseInt(text, 0, 64)
		v, want = protoreflect.ValueOfInt64(i), "a whole number of 64 bits"
	case protoreflect.Uint64Kind:
		var u uint64
		u, err = strconv.ParseUint(text, 0, 64)
		v, want = protoreflect.ValueOfUint64(u), "a whole number of 64 bits, not negative"
	default:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			err = strconv.ErrRange
		}
		v = protoreflect.ValueOfFloat64(f)
		if kind == protoreflect.FloatKind {
			v = protoreflect.ValueOfFloat32(float32(f))
		}
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		d.errorf(n, "want %s, not %s", want, describe(n))
		return v, false
	}
	return v, true
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
