package envoy

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages that a mesh has thousands of are encoded by hand: building them first would cost ten
// times as much. Tests compare each with what the protobuf library makes.

// AppendText appends a field that holds text; the empty text is left out, as everywhere in
// protobuf.
func AppendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// AppendUint appends a field that holds a number, also zero.
func AppendUint(b []byte, field protowire.Number, n uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}

// AppendMessage appends a field that holds the message which f appends.
func AppendMessage(b []byte, field protowire.Number, f func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	at := len(b)
	b = f(append(b, 0)) // one byte is enough for the length of most
	length := uint64(len(b) - at - 1)
	if more := protowire.SizeVarint(length) - 1; more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[at+1+more:], b[at+1:len(b)-more])
	}
	protowire.AppendVarint(b[:at], length)
	return b
}

// AppendUint32Value appends a field of type google.protobuf.UInt32Value.
func AppendUint32Value(b []byte, field protowire.Number, n uint32) []byte {
	return AppendMessage(b, field, func(b []byte) []byte {
		if n == 0 {
			return b
		}
		return AppendUint(b, 1, uint64(n))
	})
}

// The fields of google.protobuf.Struct, Value and ListValue, and of every map's entries.
const (
	fieldStructFields protowire.Number = 1
	FieldMapKey       protowire.Number = 1
	FieldMapValue     protowire.Number = 2
	fieldNumberValue  protowire.Number = 2
	fieldStringValue  protowire.Number = 3
	FieldBoolValue    protowire.Number = 4
	FieldStructValue  protowire.Number = 5
	FieldListValue    protowire.Number = 6
	FieldListItems    protowire.Number = 1
)

// AppendMember appends one member of a Struct; value appends the Value's one field.
func AppendMember(b []byte, key string, value func([]byte) []byte) []byte {
	return AppendMessage(b, fieldStructFields, func(b []byte) []byte {
		b = AppendText(b, FieldMapKey, key)
		return AppendMessage(b, FieldMapValue, value)
	})
}

// AppendTextMember appends a member that is text; empty text is left out.
func AppendTextMember(b []byte, key, text string) []byte {
	if text == "" {
		return b
	}
	return AppendMember(b, key, func(b []byte) []byte { return AppendText(b, fieldStringValue, text) })
}

// AppendNumberMember appends a member that is a number.
func AppendNumberMember(b []byte, key string, n float64) []byte {
	return AppendMember(b, key, func(b []byte) []byte {
		b = protowire.AppendTag(b, fieldNumberValue, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, math.Float64bits(n))
	})
}

// fieldFilterMetadata is core.v3.Metadata.filter_metadata.
const fieldFilterMetadata protowire.Number = 1

// AppendFilterMetadata appends the members under one key.
func AppendFilterMetadata(b []byte, key string, members func([]byte) []byte) []byte {
	return AppendMessage(b, fieldFilterMetadata, func(b []byte) []byte {
		b = AppendText(b, FieldMapKey, key)
		return AppendMessage(b, FieldMapValue, members)
	})
}

// AppendBytes appends a field that holds an encoded message.
func AppendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
