package ads

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// fieldRemoved is DeltaDiscoveryResponse.removed_resources.
const fieldRemoved = 6

// maxCopied is how long the elements of a response may be together, in bytes, to be copied into one
// piece.
const maxCopied = 64 << 10

// encode lays out the elements of a response. A long one has its resources one by one, as all
// streams share them: no client can have the server copy all of them.
func encode(changed []*resource.Resource, removed []string, states bool) [][]byte {
	size := sizeOf(changed, removed, states)
	switch {
	case size == 0:
		return nil
	case len(changed) == 1 && len(removed) == 0:
		return [][]byte{entry(changed[0], states)}
	case size <= maxCopied:
		return [][]byte{join(changed, removed, states, size)}
	}
	parts := make([][]byte, 0, len(changed)+1)
	for _, r := range changed {
		parts = append(parts, entry(r, states))
	}
	if len(removed) > 0 {
		parts = append(parts, join(nil, removed, states, sizeOf(nil, removed, states)))
	}
	return parts
}

// sizeOf is how long elements of a response are, in bytes.
func sizeOf(changed []*resource.Resource, removed []string, states bool) int {
	size := 0
	for _, r := range changed {
		size += len(entry(r, states))
	}
	for _, name := range removed {
		size += protowire.SizeTag(fieldRemoved) + protowire.SizeBytes(len(name))
	}
	return size
}

// join copies elements of a response, which have that size, into one piece.
func join(changed []*resource.Resource, removed []string, states bool, size int) []byte {
	b := make([]byte, 0, size)
	for _, r := range changed {
		b = append(b, entry(r, states)...)
	}
	for _, name := range removed {
		b = protowire.AppendString(protowire.AppendTag(b, fieldRemoved, protowire.BytesType), name)
	}
	return b
}

// entry is one encoded resource of a response.
func entry(r *resource.Resource, states bool) []byte {
	if states {
		return r.StateEntry()
	}
	return r.Entry()
}
