package envoy

import "google.golang.org/protobuf/encoding/protowire"

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
