package endpoint

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// appendUint32Value appends a field of type google.protobuf.UInt32Value.
func appendUint32Value(b []byte, field protowire.Number, n uint32) []byte {
	return envoy.AppendMessage(b, field, func(b []byte) []byte {
		if n == 0 {
			return b
		}
		return envoy.AppendUint(b, 1, uint64(n))
	})
}

// The fields of core.v3.Metadata and google.protobuf.Struct.
const (
	fieldFilterMetadata protowire.Number = 1 // Metadata
	fieldStructFields   protowire.Number = 1 // Struct
	fieldStringValue    protowire.Number = 3 // Value
)

// appendFilterMetadata appends a member that is text under one key.
func appendFilterMetadata(b []byte, key, member, text string) []byte {
	return envoy.AppendMessage(b, fieldFilterMetadata, func(b []byte) []byte {
		b = envoy.AppendText(b, envoy.FieldMapKey, key)
		return envoy.AppendMessage(b, envoy.FieldMapValue, func(b []byte) []byte {
			return envoy.AppendMessage(b, fieldStructFields, func(b []byte) []byte {
				b = envoy.AppendText(b, envoy.FieldMapKey, member)
				return envoy.AppendMessage(b, envoy.FieldMapValue, func(b []byte) []byte {
					return envoy.AppendText(b, fieldStringValue, text)
				})
			})
		})
	})
}
