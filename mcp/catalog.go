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

// The type URLs of MeshConfig. Source: Istio, pkg/model/xds.go and pilot/pkg/networking/apigen.
const (
	meshType     = "core/v1alpha1/MeshConfig"
	meshBodyType = "type.googleapis.com/istio.mesh.v1alpha1.MeshConfig"
)

// Objects are configuration objects by key.
type Objects = pmap.Map[config.Key, *config.Object]

// CatalogConfig holds the settings of a Catalog.
type CatalogConfig struct {
	// Readers are the identities that may read it.
	Readers Readers
	// Mesh is the MeshConfig that is served. Default: none.
	Mesh *mesh.MeshConfig
}

// Catalog turns objects into the resources that other control planes read. An object is encoded
// when it is first read, and again when it changes. Versions are hashes of contents, so they are
// equal on all replicas and after a restart. Safe for concurrent use.
type Catalog struct {
	cfg   CatalogConfig          // immutable
	types map[string]config.Kind // immutable; by type URL
	mesh  resource.Set           // immutable

	// publishMu is never held during a conversion: pushes to proxies wait for Publish.
	publishMu sync.Mutex
	published func() Objects // guarded by publishMu; nil until the first Publish
	sequence  uint64         // guarded by publishMu; the number of Publish calls

	// readMu serializes conversions. It is taken before publishMu.
	readMu    sync.Mutex
	objects   Objects                             // guarded by readMu; the objects behind resources
	converted uint64                              // guarded by readMu; the sequence of objects
	resources map[config.Key]*resource.Resource   // guarded by readMu
	layers    map[config.Kind]*resource.Layer     // guarded by readMu; kinds that were read since they changed
	byKind    map[config.Kind]map[config.Key]bool // guarded by readMu
}

// NewCatalog returns an empty catalog.
func NewCatalog(cfg CatalogConfig) *Catalog {
	c := &Catalog{
		cfg: cfg, types: map[string]config.Kind{}, resources: map[config.Key]*resource.Resource{},
		layers: map[config.Kind]*resource.Layer{}, byKind: map[config.Kind]map[config.Key]bool{},
	}
	for _, i := range config.Kinds() {
		for _, url := range typeURLs(i) {
			c.types[url] = i.Kind
		}
	}
	if m := cfg.Mesh; m != nil {
		r := resource.New(meshBodyType, "mesh", nil, func() []byte { return resource.Encode(m) })
		c.mesh.Shared = resource.NewLayer([]*resource.Resource{r})
	}
	return c
}

// May returns why an identity may not read the catalog; nil: it may.
func (c *Catalog) May(id spiffe.ID) error { return c.cfg.Readers.Authorize(id) }

// Publish replaces the content with what objects returns. objects is called at most once, by the
// next read, and not at all when Publish is called again before that. Publish never waits for it.
func (c *Catalog) Publish(objects func() Objects) {
	c.publishMu.Lock()
	defer c.publishMu.Unlock()
	c.published, c.sequence = objects, c.sequence+1
}

// Knows reports whether a type URL is one of configuration. It converts nothing.
func (c *Catalog) Knows(typeURL string) bool {
	_, ok := c.types[typeURL]
	return ok || typeURL == meshType
}

// Set returns the resources of a type URL; false: it is not one of configuration. All versions of a
// kind have the same resources.
func (c *Catalog) Set(typeURL string) (resource.Set, bool) {
	if typeURL == meshType {
		return c.mesh, true
	}
	kind, ok := c.types[typeURL]
	if !ok {
		return resource.Set{}, false
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.update()
	layer := c.layers[kind]
	if layer == nil {
		layer = c.layer(kind)
		c.layers[kind] = layer
	}
	return resource.Set{Shared: layer}, true
}

// latest returns what was published last, and its sequence.
func (c *Catalog) latest() (objects func() Objects, sequence uint64) {
	c.publishMu.Lock()
	defer c.publishMu.Unlock()
	return c.published, c.sequence
}

// update converts what was published last. Callers hold readMu.
func (c *Catalog) update() {
	published, sequence := c.latest()
	if c.converted == sequence {
		return
	}
	objects := published()
	for ch := range objects.Diff(c.objects) {
		if ch.Old != nil && ch.New != nil && ch.Old.Hash != 0 && ch.Old.Hash == ch.New.Hash {
			continue
		}
		delete(c.layers, ch.Key.Kind)
		delete(c.resources, ch.Key)
		delete(c.byKind[ch.Key.Kind], ch.Key)
		if ch.New == nil {
			continue
		}
		c.resources[ch.Key] = resourceOf(ch.New)
		if c.byKind[ch.Key.Kind] == nil {
			c.byKind[ch.Key.Kind] = map[config.Key]bool{}
		}
		c.byKind[ch.Key.Kind][ch.Key] = true
	}
	c.objects, c.converted = objects, sequence
}

// layer returns the resources of a kind. Callers hold readMu.
func (c *Catalog) layer(kind config.Kind) *resource.Layer {
	resources := make([]*resource.Resource, 0, len(c.byKind[kind]))
	for key := range c.byKind[kind] {
		resources = append(resources, c.resources[key])
	}
	return resource.NewLayer(resources)
}

// resourceOf returns the resource of an object. It is encoded when it is first read.
func resourceOf(o *config.Object) *resource.Resource {
	name := o.Key.Namespace + "/" + o.Key.Name
	return resource.New(resourceType, name, nil, func() []byte {
		m := &mcpv1.Metadata{Name: name, Labels: o.Labels, Annotations: o.Annotations}
		if !o.Created.IsZero() {
			m.CreateTime = timestamppb.New(o.Created)
		}
		typeURL := "type.googleapis.com/" + string(o.Spec.ProtoReflect().Descriptor().FullName())
		body := &anypb.Any{TypeUrl: typeURL, Value: resource.Encode(o.Spec)}
		res := &mcpv1.Resource{Metadata: m, Body: body}
		sum := sha256.Sum256(resource.Encode(res))
		m.Version = hex.EncodeToString(sum[:8])
		return resource.Encode(res)
	})
}
