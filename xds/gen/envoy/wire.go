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

// FieldMapKey and FieldMapValue are the fields of every map's entries.
const (
	FieldMapKey   protowire.Number = 1
	FieldMapValue protowire.Number = 2
)

// The fields of core.v3.Metadata, and of google.protobuf.Struct, ListValue and Value.
const (
	fieldFilterMetadata protowire.Number = 1 // Metadata
	fieldStructFields   protowire.Number = 1 // Struct
	fieldListValues     protowire.Number = 1 // ListValue
	fieldNumberValue    protowire.Number = 2 // Value
	fieldStringValue    protowire.Number = 3
	fieldBoolValue      protowire.Number = 4
	fieldStructValue    protowire.Number = 5
	fieldListValue      protowire.Number = 6
)

// AppendFilterMetadata appends the entry of a filter to a core.v3.Metadata; members appends the
// members of its Struct, by name.
func AppendFilterMetadata(b []byte, filter string, members func([]byte) []byte) []byte {
	return appendEntry(b, fieldFilterMetadata, filter, members)
}

// AppendStringMember appends a member of a Struct that is a text.
func AppendStringMember(b []byte, name, text string) []byte {
	return appendEntry(b, fieldStructFields, name, func(b []byte) []byte { return AppendText(b, fieldStringValue, text) })
}

// AppendNumberMember appends a member of a Struct that is a number.
func AppendNumberMember(b []byte, name string, n float64) []byte {
	return appendEntry(b, fieldStructFields, name, func(b []byte) []byte {
		b = protowire.AppendTag(b, fieldNumberValue, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, math.Float64bits(n))
	})
}

// AppendTrueMember appends a member of a Struct that is true.
func AppendTrueMember(b []byte, name string) []byte {
	return appendEntry(b, fieldStructFields, name, func(b []byte) []byte { return AppendUint(b, fieldBoolValue, 1) })
}

// AppendListMember appends a member of a Struct that is a list of n Structs; item appends the
// members of one.
func AppendListMember(b []byte, name string, n int, item func(b []byte, i int) []byte) []byte {
	return appendEntry(b, fieldStructFields, name, func(b []byte) []byte {
		return AppendMessage(b, fieldListValue, func(b []byte) []byte {
			for i := range n {
				b = AppendMessage(b, fieldListValues, func(b []byte) []byte {
					return AppendMessage(b, fieldStructValue, func(b []byte) []byte { return item(b, i) })
				})
			}
			return b
		})
	})
}

// appendEntry appends an entry of a map whose values are messages.
func appendEntry(b []byte, field protowire.Number, key string, value func([]byte) []byte) []byte {
	return AppendMessage(b, field, func(b []byte) []byte {
		return AppendMessage(AppendText(b, FieldMapKey, key), FieldMapValue, value)
	})
}
