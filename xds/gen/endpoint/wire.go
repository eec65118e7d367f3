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

// appendTextMetadata appends a member that is text under the key of a filter.
func appendTextMetadata(b []byte, filter, member, text string) []byte {
	return envoy.AppendFilterMetadata(b, filter, func(b []byte) []byte {
		return envoy.AppendStringMember(b, member, text)
	})
}
