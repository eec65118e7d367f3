package envoy

import (
	"github.com/ashore-mesh/ashore/internal/feed"
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

// Part is one resource of a layer. Parts are remembered by what they are made of.
type Part struct {
	// Resource is nil when it is left out.
	Resource *resource.Resource
	// Problems are warnings about it, and what was left out of it because Envoy would refuse it.
	Problems []feed.Problem
	// Held is what it was made of; nil: nothing that is remembered. It lives as long as the part.
	Held any
}

// Report adds a problem; nil: none.
func (p *Part) Report(problem *feed.Problem) {
	if problem != nil {
		p.Problems = append(p.Problems, *problem)
	}
}

// LayerOf is a layer of parts, with their problems and others.
func LayerOf(parts []*Part, problems ...feed.Problem) *Layer {
	l := &Layer{}
	items := make([]*resource.Resource, 0, len(parts))
	for _, p := range parts {
		l.Held = append(l.Held, p)
		problems = append(problems, p.Problems...)
		if p.Resource != nil {
			items = append(items, p.Resource)
		}
	}
	l.Layer = *resource.NewLayer(items)
	l.Problems = problems
	return l
}

// Plan is everything that a layer depends on, as a comparable value. Layer makes the layer and reads
// nothing else, so that layers are remembered by plan.
type Plan interface{ Layer() *Layer }

// Kind makes the resources of one type. Plans returns the plan of what equal proxies share, and of
// what is the proxy's own; nil: there is nothing.
type Kind interface {
	Plans(sc *push.Scope) (shared, own Plan)
}
