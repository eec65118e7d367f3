package xdstest

import (
	"iter"
	"maps"
	"net/netip"
	"sync"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Mesh is a generator whose resources are given by hand. Every proxy has the same. Safe for
// concurrent use.
type Mesh struct {
	mu   sync.Mutex
	sets map[*push.Scope]map[string]resource.Set // guarded by mu
}

// NewMesh makes an empty one.
func NewMesh() *Mesh { return &Mesh{sets: map[*push.Scope]map[string]resource.Set{}} }

// Context is a context in which every proxy has the resources that it was made of.
type Context struct {
	scope *push.Scope
	// Objects is the configuration.
	Objects push.Objects
	// All are the secrets that credentialName names.
	All *secret.Set
}

// Secrets implements xds.Context.
func (c *Context) Secrets() *secret.Set { return c.All }

// Classify implements xds.Context.
func (c *Context) Classify(push.Node) push.Facets { return push.Facets{} }

// Scope implements xds.Context.
func (c *Context) Scope(push.Facets) *push.Scope { return c.scope }

// Object implements xds.Context.
func (c *Context) Object(key config.Key) *config.Object { return c.Objects.At(key) }

// WorkloadEntriesAt implements xds.Context.
func (c *Context) WorkloadEntriesAt(address netip.Addr) iter.Seq[*config.Object] {
	return push.Build(nil, push.Inputs{Mesh: &push.Mesh{}, Objects: c.Objects}).WorkloadEntriesAt(address)
}

// Context makes a context of sets by type.
func (m *Mesh) Context(sets map[string]resource.Set) *Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Context{scope: &push.Scope{}}
	m.sets[c.scope] = maps.Clone(sets)
	return c
}

// Set implements xds.Generator.
func (m *Mesh) Set(typeURL string, sc *push.Scope) resource.Set {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sets[sc][typeURL]
}

// Layers makes sets of resources, one shared layer for each type.
func Layers(resources ...*resource.Resource) map[string]resource.Set {
	byType := map[string][]*resource.Resource{}
	for _, r := range resources {
		byType[r.TypeURL] = append(byType[r.TypeURL], r)
	}
	out := map[string]resource.Set{}
	for typeURL, items := range byType {
		out[typeURL] = resource.Set{Shared: resource.NewLayer(items)}
	}
	return out
}
