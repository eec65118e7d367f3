package ads

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// fieldRemoved is DeltaDiscoveryResponse.removed_resources.
const fieldRemoved = 6

// maxCopied is how long the resources of a response may be together, in bytes, to be copied into one
// piece.
const maxCopied = 64 << 10

// encode lays out the elements of a delta response. A long one has its resources one by one, as all
// streams share them: no client can have the server copy all of them.
func encode(changed []*resource.Resource, removed []string) [][]byte {
	size := 0
	for _, r := range changed {
		size += len(r.Entry())
	}
	var parts [][]byte
	var copied []byte
	if len(changed) > 1 && size <= maxCopied {
		copied = make([]byte, 0, size)
	}
	for _, r := range changed {
		if copied != nil {
			copied = append(copied, r.Entry()...)
		} else {
			parts = append(parts, r.Entry())
		}
	}
	for _, name := range removed {
		copied = protowire.AppendString(protowire.AppendTag(copied, fieldRemoved, protowire.BytesType), name)
	}
	if len(copied) > 0 {
		parts = append(parts, copied)
	}
	return parts
}
