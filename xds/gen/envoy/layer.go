package envoy

import (
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Layer is a layer of resources with what is known of it.
type Layer struct {
	resource.Layer
	// Held are parts that it was made of. They live as long as the layer, so that the next layer is
	// made of the parts that did not change.
	Held []any
}

// NewLayer is a layer of items.
func NewLayer(items ...*resource.Resource) *Layer { return &Layer{Layer: *resource.NewLayer(items)} }

// Fill gives the layer its resources, once, when it is made.
func (l *Layer) Fill(items []*resource.Resource) {
	problems := l.Problems
	l.Layer = *resource.NewLayer(items)
	l.Problems = problems
}

// Plan is everything that a layer depends on, as a comparable value. Layer makes the layer and reads
// nothing else, so that layers are remembered by plan.
type Plan interface{ Layer() *Layer }

// Kind makes the resources of one type. Plans returns the plan of what equal proxies share, and of
// what is the proxy's own; nil: there is nothing.
type Kind interface {
	Plans(sc *push.Scope) (shared, own Plan)
}
