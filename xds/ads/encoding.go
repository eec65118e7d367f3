package ads

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// fieldRemoved is DeltaDiscoveryResponse.removed_resources.
const fieldRemoved = 6

// maxCopied is how long the resources of a response may be together, in bytes, to be copied into one
// piece.
const maxCopied = 64 << 10

// chunkSize is how many resources that follow one another in a layer are encoded together.
const chunkSize = 64

// chunkKey is a chunk of a layer: its first resource has the number index*chunkSize.
type chunkKey struct {
	layer *resource.Layer
	index int
}

// chunk is the encoding of a part of a layer.
type chunk struct{ bytes []byte }

func encodeChunk(k chunkKey) *chunk {
	c := &chunk{}
	for _, r := range k.layer.Items()[k.index*chunkSize:][:chunkSize] {
		c.bytes = append(c.bytes, r.Entry()...)
	}
	return c
}

// encode lays out the elements of a delta response; changed are sorted by name, and mostly of layer.
// A long one consists of chunks and of single resources, which all streams share: no client can have
// the server copy all of them by asking for one more name.
func (c *Cache) encode(layer *resource.Layer, changed []*resource.Resource, removed []string) (parts [][]byte,
	chunks []*chunk) {
	size := 0
	for _, r := range changed {
		size += len(r.Entry())
	}
	var copied []byte
	copies, items := len(changed) > 1 && size <= maxCopied, layer.Items()
	for rest := changed; len(rest) > 0; {
		i, found := resource.Search(items, rest[0].Name)
		whole := found && i%chunkSize == 0 && len(rest) >= chunkSize && len(items) >= i+chunkSize
		switch {
		case copies:
			copied, rest = append(copied, rest[0].Entry()...), rest[1:]
		case whole && slices.Equal(rest[:chunkSize], items[i:i+chunkSize]):
			one := c.chunks.Get(chunkKey{layer, i / chunkSize})
			chunks, parts, rest = append(chunks, one), append(parts, one.bytes), rest[chunkSize:]
		default:
			parts, rest = append(parts, rest[0].Entry()), rest[1:]
		}
	}
	for _, name := range removed {
		copied = protowire.AppendString(protowire.AppendTag(copied, fieldRemoved, protowire.BytesType), name)
	}
	if len(copied) > 0 {
		parts = append(parts, copied)
	}
	return parts, chunks
}
