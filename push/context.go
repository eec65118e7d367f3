package push

import (
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/registry"
)

// Objects holds all configuration objects by key.
type Objects = pmap.Map[config.Key, *config.Object]

// Services holds all services by key.
type Services = pmap.Map[registry.Key, *registry.Service]

// Endpoints holds the endpoints of all services by key.
type Endpoints = pmap.Map[registry.Key, *registry.EndpointList]

// Inputs holds everything that a Context depends on. Two are equal if == says so.
type Inputs struct {
	// Mesh holds the mesh-wide settings. It is never nil.
	Mesh *Mesh
	// Objects holds the active configuration objects.
	Objects Objects
	// Services and Endpoints are merged from all sources. Services have their allocated virtual
	// IPs.
	Services  Services
	Endpoints Endpoints
	// Trust holds the trusted roots and the revocations. Nil if there is no certificate authority.
	Trust *Trust
	// Keys holds the public keys of token issuers. Nil if none were fetched.
	Keys *KeySets
	// Secrets holds the certificates and keys that credentialName names. Nil: it is not known which
	// there are.
	Secrets *secret.Set
}

// Context is an immutable snapshot of the mesh: the inputs, and indexes over them. It is safe for
// concurrent use.
type Context struct {
	in     Inputs
	tables *tables // interned values, shared by all contexts of a mesh domain; safe for concurrent use

	virtual   virtualServices
	rules     rules
	sidecars  sidecars
	gateways  gateways
	workloads workloadIndex
	entries   workloadEntries

	identities identities
	policies   map[config.Kind]policies // not changed after Build

	networkGateways *intern.List[networkGateway]

	cache    *contextCache // lazily computed results
	previous *contextCache // cache of the last context that was used; keeps its results in memory
}

// Build returns the context for in. It reuses the unchanged parts of prev, which may be nil, so the
// cost is proportional to the changes.
func Build(prev *Context, in Inputs) *Context {
	if prev == nil || !sameIndexes(prev.in.Mesh, in.Mesh) {
		prev = &Context{tables: newTables()}
	}
	c := *prev
	c.in, c.policies = in, map[config.Kind]policies{}
	maps.Copy(c.policies, prev.policies)
	for ch := range in.Objects.Diff(prev.in.Objects) {
		c.index(ch)
	}
	for ch := range in.Endpoints.Diff(prev.in.Endpoints) {
		c.workloads = c.workloads.with(c.tables, ch)
		c.identities = c.identities.with(c.tables, ch)
	}
	c.networkGateways = c.findNetworkGateways()
	if prev.cache != nil && prev.cache.used.Load() {
		c.previous = prev.cache
	}
	c.cache = newContextCache(&c)
	return &c
}

// sameIndexes reports whether the indexes of both meshes are equal. They contain resolved host
// names, and VirtualServices with the delegates that they see.
func sameIndexes(a, b *Mesh) bool {
	return a.Domain == b.Domain && slices.Equal(a.Config.GetDefaultVirtualServiceExportTo(),
		b.Config.GetDefaultVirtualServiceExportTo())
}

// Inputs returns what the context was built from.
func (c *Context) Inputs() Inputs { return c.in }

// Secrets returns all secrets; nil if there are none.
func (c *Context) Secrets() *secret.Set { return c.in.Secrets }

// Object returns the configuration object with that key, or nil if there is none.
func (c *Context) Object(key config.Key) *config.Object { return c.in.Objects.At(key) }

// index updates the index for the kind of a changed object. If only the position in its file
// changed, the index keeps the old object, and memoized results stay valid.
func (c *Context) index(ch pmap.Change[config.Key, *config.Object]) {
	if ch.Old != nil && ch.New != nil && ch.Old.Hash != 0 && ch.Old.Hash == ch.New.Hash {
		return
	}
	switch ch.Key.Kind {
	case config.VirtualService:
		c.virtual = c.virtual.with(ch, c.in)
	case config.DestinationRule:
		c.rules = c.rules.with(ch.Old, ch.New, c.in.Mesh.Domain)
	case config.Sidecar:
		c.sidecars = c.sidecars.with(ch.Key, ch.New)
	case config.Gateway:
		c.gateways.byKey = set(c.gateways.byKey, ch.Key, ch.New)
	case config.WorkloadEntry:
		c.entries = c.entries.with(ch.Old, ch.New)
	case config.PeerAuthentication, config.RequestAuthentication, config.AuthorizationPolicy, config.Telemetry,
		config.ProxyConfig, config.TrafficExtension, config.EnvoyFilter:
		c.policies[ch.Key.Kind] = policies{ch.Key.Kind, set(c.policies[ch.Key.Kind].byKey, ch.Key, ch.New)}
	}
}

// set returns m with v at key k, or without k if v is zero.
func set[K pmap.Key[K], V comparable](m pmap.Map[K, V], k K, v V) pmap.Map[K, V] {
	var zero V
	if v == zero {
		return m.Without(k)
	}
	return m.With(k, v)
}
