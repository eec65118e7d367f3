package ads

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Cache is what the subscriptions of many streams share: their names, the differences between
// layers, and their encodings. An entry lives as long as a stream uses it. Safe for concurrent use.
type Cache struct {
	names    interner
	diffs    *memo.Func[diffKey, diff]
	versions *memo.Func[contentKey, string]
	chunks   *memo.Func[chunkKey, chunk]
}

// NewCache makes an empty one.
func NewCache() *Cache {
	return &Cache{
		diffs:    memo.New(compare),
		versions: memo.New(contentVersion),
		chunks:   memo.New(encodeChunk),
	}
}

// contentKey is the part of a layer that some names cover.
type contentKey struct {
	layer *resource.Layer
	names *Names
}

// contentVersion is the hash of the names and versions of what names cover in a layer. Names that
// do not exist count too.
func contentVersion(k contentKey) *string {
	h := sha256.New()
	add := func(name, version string) {
		h.Write([]byte(name))
		h.Write([]byte{0})
		h.Write([]byte(version))
		h.Write([]byte{0})
	}
	if k.names.All() {
		for _, r := range k.layer.Items() {
			add(r.Name, r.Version())
		}
	}
	c := cursor{items: k.layer.Items()}
	for _, name := range k.names.List() {
		if r := c.get(name); r != nil {
			add(name, r.Version())
		} else {
			add(name, "")
		}
	}
	s := hex.EncodeToString(h.Sum(nil)[:8])
	return &s
}

// version identifies the content of to as far as names cover it: equal on every replica.
func (c *Cache) version(to resource.Set, names *Names) *string {
	shared := c.versions.Get(contentKey{to.Shared, names})
	if len(to.Own.Items()) == 0 {
		return shared
	}
	both := *shared + "." + *contentVersion(contentKey{to.Own, names})
	return &both
}

// diff returns the difference, nil when there is none.
func (c *Cache) diff(k diffKey) *diff {
	if k.from == k.to && k.known == k.names {
		return nil
	}
	return c.diffs.Get(k)
}
