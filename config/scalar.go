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
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return d.float(fd.Kind(), n)
	default:
		return d.integer(fd.Kind(), n)
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

// enum reads the name of an enum's value. Its number is refused, unless it was accepted before:
// nobody sees that mode: 0 asks for nothing.
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
	if value := byNumber(e, n); value != nil {
		if !d.kept {
			d.errorf(n, "want a name, not %s, which is %s: write one of %s", describe(n), value.Name(),
				strings.Join(names, ", "))
		}
		return protoreflect.ValueOfEnum(value.Number()), d.kept
	}
	d.errorf(n, "want one of %s, not %s%s", strings.Join(names, ", "), describe(n), didYouMean(n.Value, names))
	return v, false
}

// byNumber is the value of an enum whose number is written; nil when there is none.
func byNumber(e protoreflect.EnumDescriptor, n *yaml.Node) protoreflect.EnumValueDescriptor {
	i, err := strconv.ParseInt(n.Value, 10, 32)
	if n.Kind != yaml.ScalarNode || err != nil {
		return nil
	}
	return e.Values().ByNumber(protoreflect.EnumNumber(i))
}

func (d *decoder) bytes(n *yaml.Node) (v protoreflect.Value, ok bool) {
	text, ok := d.text(n)
	if !ok {
		return v, false
	}
	encoding := base64.StdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	b, err := encoding.WithPadding(base64.NoPadding).DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		d.errorf(n, "not base64: %s", err)
		return v, false
	}
	return protoreflect.ValueOfBytes(b), true
}

// number returns the digits of a number, which may stand in quotes.
func (d *decoder) number(n *yaml.Node, want string) (string, bool) {
	if n.Kind == yaml.ScalarNode {
		switch n.ShortTag() {
		case "!!int", "!!float":
			return strings.ReplaceAll(n.Value, "_", ""), true
		case "!!str":
			if _, err := strconv.ParseFloat(n.Value, 64); err == nil {
				return n.Value, true
			}
		}
	}
	d.errorf(n, "want %s, not %s", want, describe(n))
	return "", false
}

func (d *decoder) float(kind protoreflect.Kind, n *yaml.Node) (v protoreflect.Value, ok bool) {
	text, ok := d.number(n, "a number")
	if !ok {
		return v, false
	}
	bits := 64
	if kind == protoreflect.FloatKind {
		bits = 32
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		d.errorf(n, "want a finite number, not %s", describe(n))
		return v, false
	}
	if bits == 32 {
		return protoreflect.ValueOfFloat32(float32(f)), true
	}
	return protoreflect.ValueOfFloat64(f), true
}

// integer reads a whole number of the range that kind has.
func (d *decoder) integer(kind protoreflect.Kind, n *yaml.Node) (v protoreflect.Value, ok bool) {
	text, ok := d.number(n, "a whole number")
	if !ok {
		return v, false
	}
	var err error
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		var i int64
		i, err = strconv.ParseInt(text, 0, 32)
		v = protoreflect.ValueOfInt32(int32(i))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		var u uint64
		u, err = strconv.ParseUint(text, 0, 32)
		v = protoreflect.ValueOfUint32(uint32(u))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		var u uint64
		u, err = strconv.ParseUint(text, 0, 64)
		v = protoreflect.ValueOfUint64(u)
	default:
		var i int64
		i, err = strconv.ParseInt(text, 0, 64)
		v = protoreflect.ValueOfInt64(i)
	}
	if err != nil {
		d.errorf(n, "want a whole number within %s, not %s", rangeOf(kind), describe(n))
		return v, false
	}
	return v, true
}

func rangeOf(kind protoreflect.Kind) string {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return "-2147483648 to 2147483647"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return "0 to 4294967295"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "0 to 18446744073709551615"
	default:
		return "-9223372036854775808 to 9223372036854775807"
	}
}

// mapKey reads the key of a map. Any spelling is text: names such as 8080 or true need no quotes.
func (d *decoder) mapKey(fd protoreflect.FieldDescriptor, n *yaml.Node) (k protoreflect.MapKey, ok bool) {
	if fd.Kind() == protoreflect.StringKind {
		return protoreflect.ValueOfString(n.Value).MapKey(), true
	}
	v, ok := d.scalar(fd, n)
	if !ok {
		return k, false
	}
	return v.MapKey(), true
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
