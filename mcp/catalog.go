package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// The settings of the mesh as a type over xDS. Source: Istio, pkg/model/xds.go and pilot/pkg/networking/apigen.
const (
	meshType     = "core/v1alpha1/MeshConfig"
	meshBodyType = "type.googleapis.com/istio.mesh.v1alpha1.MeshConfig"
)

// Objects are configuration objects by key.
type Objects = pmap.Map[config.Key, *config.Object]

// CatalogConfig says what is served.
type CatalogConfig struct {
	// Readers are who may read it.
	Readers Readers
	// Mesh are the settings of the mesh; nil: nobody is told.
	Mesh *mesh.MeshConfig
}

// Catalog makes of objects the resources that other control planes are told. Each object is encoded when
// somebody asks first, and again when it changes; versions are hashes of contents, so that they are equal on every replica
// and after a restart. Safe for concurrent use.
type Catalog struct {
	cfg   CatalogConfig          // set once
	types map[string]config.Kind // set once: by type over xDS
	mesh  resource.Set           // set once

	// news is what who publishes writes. It is never held while anything is made: pushes to proxies wait for it.
	news    sync.Mutex
	number  uint64         // guarded by news: of what was published last; zero: nothing was
	latest  func() Objects // guarded by news: makes that
	objects *Objects       // guarded by news: is that, when it needs no making

	// making is held by who reads while he makes what he is told. It is taken before news.
	making sync.Mutex
	made   Objects                             // guarded by making: of what items and layers are
	madeOf uint64                              // guarded by making: the number of that
	items  map[config.Key]*resource.Resource   // guarded by making
	layers map[config.Kind]*resource.Layer     // guarded by making; a kind is missing until it is asked for
	byKind map[config.Kind]map[config.Key]bool // guarded by making
}

// NewCatalog makes one without objects.
func NewCatalog(cfg CatalogConfig) *Catalog {
	c := &Catalog{cfg: cfg, types: map[string]config.Kind{}, items: map[config.Key]*resource.Resource{}, layers: map[config.Kind]*resource.Layer{},
		byKind: map[config.Kind]map[config.Key]bool{}}
	for _, i := range config.Kinds() {
		for _, url := range typeURLs(i) {
			c.types[url] = i.Kind
		}
	}
	if m := cfg.Mesh; m != nil {
		c.mesh.Shared = resource.NewLayer([]*resource.Resource{resource.New(meshBodyType, "mesh", nil, func() []byte { return resource.Encode(m) })})
	}
	return c
}

// May says why somebody may not read the catalog; nil: they may.
func (c *Catalog) May(id spiffe.ID) error { return c.cfg.Readers.May(id) }

// Publish makes objects what everybody is told. It costs nothing while nobody asks.
func (c *Catalog) Publish(objects Objects) {
	c.news.Lock()
	defer c.news.Unlock()
	if c.objects != nil && *c.objects == objects {
		return
	}
	c.objects = &objects
	c.publish(func() Objects { return objects })
}

// PublishFrom makes what objects returns what everybody is told. It is called when somebody asks, once, from any goroutine;
// not at all when more was published before. No two of such calls happen at a time, and nobody who publishes waits for one.
func (c *Catalog) PublishFrom(objects func() Objects) {
	c.news.Lock()
	defer c.news.Unlock()
	c.objects = nil
	c.publish(objects)
}

// publish makes what latest returns what everybody is told, and tells who waits. Callers hold news.
func (c *Catalog) publish(latest func() Objects) {
	c.number++
	c.latest = latest
}

// Ready says that something was published: before that there is nothing to tell, which is not the same as an empty mesh.
func (c *Catalog) Ready() bool {
	c.news.Lock()
	defer c.news.Unlock()
	return c.number > 0
}

// Knows says that a type over xDS is a name of configuration. It makes nothing.
func (c *Catalog) Knows(name string) bool {
	_, ok := c.types[name]
	return ok || name == meshType
}

// Set is what there is of a type over xDS; false: it is no name of configuration. Every name of a kind holds the same.
func (c *Catalog) Set(name string) (resource.Set, bool) {
	if name == meshType {
		return c.mesh, true
	}
	kind, ok := c.types[name]
	if !ok {
		return resource.Set{}, false
	}
	return c.kind(kind), true
}

// kind is what there is of a kind.
func (c *Catalog) kind(kind config.Kind) resource.Set {
	c.making.Lock()
	defer c.making.Unlock()
	c.update()
	layer := c.layers[kind]
	if layer == nil {
		layer = c.layer(kind)
		c.layers[kind] = layer
	}
	return resource.Set{Shared: layer}
}

// published is what was published last, and its number.
func (c *Catalog) published() (latest func() Objects, number uint64) {
	c.news.Lock()
	defer c.news.Unlock()
	return c.latest, c.number
}

// update brings the items up to date. Callers hold making.
func (c *Catalog) update() {
	publish, number := c.published()
	if c.madeOf == number {
		return
	}
	latest := publish()
	for ch := range latest.Diff(c.made) {
		if ch.Old != nil && ch.New != nil && ch.Old.Hash != 0 && ch.Old.Hash == ch.New.Hash {
			continue
		}
		delete(c.layers, ch.Key.Kind)
		delete(c.items, ch.Key)
		delete(c.byKind[ch.Key.Kind], ch.Key)
		if ch.New == nil {
			continue
		}
		c.items[ch.Key] = resourceOf(ch.New)
		if c.byKind[ch.Key.Kind] == nil {
			c.byKind[ch.Key.Kind] = map[config.Key]bool{}
		}
		c.byKind[ch.Key.Kind][ch.Key] = true
	}
	c.made, c.madeOf = latest, number
}

// layer is what there is of a kind.
func (c *Catalog) layer(kind config.Kind) *resource.Layer {
	items := make([]*resource.Resource, 0, len(c.byKind[kind]))
	for key := range c.byKind[kind] {
		items = append(items, c.items[key])
	}
	return resource.NewLayer(items)
}

// resourceOf makes the resource of an object, which is encoded when somebody is told of it.
func resourceOf(o *config.Object) *resource.Resource {
	return resource.New(resourceType, o.Key.Namespace+"/"+o.Key.Name, nil, func() []byte {
		m := &mcpv1.Metadata{Name: o.Key.Namespace + "/" + o.Key.Name, Labels: o.Labels, Annotations: o.Annotations}
		if !o.Created.IsZero() {
			m.CreateTime = timestamppb.New(o.Created)
		}
		res := &mcpv1.Resource{Metadata: m, Body: &anypb.Any{TypeUrl: "type.googleapis.com/" + string(o.Spec.ProtoReflect().Descriptor().FullName()), Value: resource.Encode(o.Spec)}}
		sum := sha256.Sum256(resource.Encode(res))
		m.Version = hex.EncodeToString(sum[:8])
		return resource.Encode(res)
	})
}
