package ads

import "github.com/ashore-mesh/ashore/internal/memo"

// Cache is what the subscriptions of many streams share: their names, the differences between
// layers, and the encodings of parts of layers. An entry lives as long as a stream uses it. Safe for
// concurrent use.
type Cache struct {
	names  interner
	diffs  *memo.Func[diffKey, diff]
	chunks *memo.Func[chunkKey, chunk]
}

// NewCache makes an empty one.
func NewCache() *Cache { return &Cache{diffs: memo.New(compare), chunks: memo.New(encodeChunk)} }

// diff returns the difference, nil when there is none.
func (c *Cache) diff(k diffKey) *diff {
	if k.from == k.to && k.known == k.names {
		return nil
	}
	return c.diffs.Get(k)
}
