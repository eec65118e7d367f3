package ads

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// fieldRemoved is DeltaDiscoveryResponse.removed_resources.
const fieldRemoved = 6

// maxCopied is how long the elements of a response may be together, in bytes, to be copied into one
// piece.
const maxCopied = 64 << 10

// encoding is the elements of a response in pieces. A long one consists of the encodings of single
// resources and of chunks, which all streams share: a client cannot have the server copy all of
// them by asking for one more name.
type encoding struct {
	parts  [][]byte
	chunks []*chunk // of which parts consist in part; they are shared as long as somebody holds them
}

// chunkSize is how many resources that follow one another in a layer are encoded together.
const chunkSize = 64

// chunkKey is a chunk of a layer: its first resource is that of number index*chunkSize.
type chunkKey struct {
	layer  *resource.Layer
	index  int
	states bool
}

// chunk is the encoding of a part of a layer.
type chunk struct{ bytes []byte }

func encodeChunk(k chunkKey) *chunk {
	items := k.layer.Items()[k.index*chunkSize:][:chunkSize]
	return &chunk{join(items, nil, k.states, sizeOf(items, nil, k.states))}
}

// encode lays out the elements of a response; changed are sorted by name, and mostly of layer. One
// resource alone is not copied.
func (c *Cache) encode(layer *resource.Layer, changed []*resource.Resource, removed []string, states bool) encoding {
	size := sizeOf(changed, removed, states)
	switch {
	case size == 0:
		return encoding{}
	case len(changed) == 1 && len(removed) == 0:
		return encoding{parts: [][]byte{entry(changed[0], states)}}
	case size <= maxCopied:
		return encoding{parts: [][]byte{join(changed, removed, states, size)}}
	}
	var e encoding
	items := layer.Items()
	for rest := changed; len(rest) > 0; {
		i, found := search(items, rest[0].Name)
		whole := found && i%chunkSize == 0 && len(rest) >= chunkSize && len(items) >= i+chunkSize
		if whole && slices.Equal(rest[:chunkSize], items[i:i+chunkSize]) {
			one := c.chunks.Get(chunkKey{layer, i / chunkSize, states})
			e.chunks, e.parts = append(e.chunks, one), append(e.parts, one.bytes)
			rest = rest[chunkSize:]
			continue
		}
		e.parts = append(e.parts, entry(rest[0], states))
		rest = rest[1:]
	}
	if len(removed) > 0 {
		e.parts = append(e.parts, join(nil, removed, states, sizeOf(nil, removed, states)))
	}
	return e
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
